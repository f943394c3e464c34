//! The path of `stats_file`, with `%p` for the process id.

use core::ffi::CStr;

use super::options::Fault;

/// Room for a path, its final NUL included.
pub const PATH_BYTES: usize = 512;

/// A path must be absolute, since a service's directory is seldom what its owner thinks, and every
/// `%` must be a `%p`.
pub(super) fn check(value: &[u8]) -> Result<&[u8], Fault> {
    match expand_path(value, u32::MAX, &mut [0; PATH_BYTES]) {
        Some(_) if value.starts_with(b"/") => Ok(value),
        _ => Err(Fault::BadValue),
    }
}

/// Writes `pattern` with the process id in place of `%p` into `room`. None if it does not fit, holds
/// a NUL, or another `%`.
pub fn expand_path<'a>(
    pattern: &[u8],
    process_id: u32,
    room: &'a mut [u8; PATH_BYTES],
) -> Option<&'a CStr> {
    let mut length = 0;
    let mut push = |byte: u8| {
        *room.get_mut(length)? = byte;
        length += 1;
        Some(())
    };
    let mut rest = pattern.iter();
    while let Some(&byte) = rest.next() {
        match byte {
            0 => return None,
            b'%' => match rest.next() {
                Some(b'p') => digits(process_id, &mut push)?,
                _ => return None,
            },
            _ => push(byte)?,
        }
    }
    push(0)?;
    CStr::from_bytes_with_nul(&room[..length]).ok()
}

fn digits(number: u32, push: &mut impl FnMut(u8) -> Option<()>) -> Option<()> {
    if number >= 10 {
        digits(number / 10, push)?;
    }
    push(b'0' + (number % 10) as u8)
}
