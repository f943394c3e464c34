//! From the text of a value to the value, by the shape that its key gives it; the path of `stats_file`, with `%p` for the
//! process id.
#![forbid(unsafe_code)]

use super::keys::{Id, KEYS, Shape};
use super::options::{Fault, Options};
use core::ffi::CStr;

/// Sets the key at `place` from the text of its value.
pub fn set<'a>(options: &mut Options<'a>, place: usize, text: &'a [u8]) -> Result<(), Fault> {
    let number = match KEYS[place].shape {
        Shape::Truth => word(text, &[b"false", b"true"])?,
        Shape::OnOff => word(text, &[b"off", b"on"])?,
        Shape::Choice(words) => {
            let chosen = words.iter().position(|word| word.to_bytes() == text);
            chosen.ok_or(Fault::BadValue)? as u64
        }
        Shape::Number { least, most, clips, .. } => bounded(text, least.into(), most.into(), clips)?,
        Shape::Decay => bounded(text, -1, i64::MAX.into(), false)?,
        Shape::Arenas if text == b"default" => 0,
        Shape::Arenas => bounded(text, 0, u32::MAX.into(), false)?,
        Shape::LogOf(other) => {
            let log = bounded(text, 0, 63, true)?;
            let of = Options::bound(other).min(1 << log);
            options.set(other, of);
            return Ok(());
        }
        Shape::Ratio => ratio(text)?,
        Shape::Bytes => bytes(text)?,
        Shape::Text(at) => {
            options.texts[at] = Some(text);
            return Ok(());
        }
        Shape::Path(at) => {
            options.texts[at] = Some(check_path(text)?);
            return Ok(());
        }
    };
    options.numbers[place] = number;
    Ok(())
}

impl Options<'_> {
    /// The greatest value of a number.
    fn bound(id: Id) -> u64 {
        match id.key().shape {
            Shape::Number { most, .. } => most,
            _ => u64::MAX,
        }
    }
}

fn word(text: &[u8], words: &[&[u8]]) -> Result<u64, Fault> {
    let place = words.iter().position(|word| *word == text);
    place.map(|place| place as u64).ok_or(Fault::BadValue)
}

/// A whole number as C reads it: decimal, with `0x` or `0` before it hexadecimal or octal, and a sign.
pub fn number(text: &[u8]) -> Result<i128, Fault> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    let (digits, base) = match digits {
        [b'0', b'x' | b'X', rest @ ..] => (rest, 16),
        [b'0', rest @ ..] if !rest.is_empty() => (rest, 8),
        rest => (rest, 10),
    };
    if digits.is_empty() {
        return Err(Fault::BadValue);
    }
    let mut value: i128 = 0;
    for &digit in digits {
        let digit = char::from(digit).to_digit(base).ok_or(Fault::BadValue)?;
        value = value * i128::from(base) + i128::from(digit);
        if value > u64::MAX.into() {
            return Err(Fault::BadValue);
        }
    }
    Ok(sign * value)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounds are those of 64 bits, and a negative number keeps its bits"
)]
fn bounded(text: &[u8], least: i128, most: i128, clips: bool) -> Result<u64, Fault> {
    let value = number(text)?;
    if !clips && !(least..=most).contains(&value) {
        return Err(Fault::OutOfRange);
    }
    Ok(value.clamp(least, most) as u64)
}

/// A decimal fraction with 16 bits after the point.
fn ratio(text: &[u8]) -> Result<u64, Fault> {
    let point = text.iter().position(|&byte| byte == b'.');
    let (whole, part) = match point {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    if whole.is_empty() && part.is_empty() {
        return Err(Fault::BadValue);
    }
    let mut value: u64 = 0;
    for &digit in whole {
        let digit = char::from(digit).to_digit(10).ok_or(Fault::BadValue)?;
        value = value * 10 + u64::from(digit);
        if value > u16::MAX.into() {
            return Err(Fault::OutOfRange);
        }
    }
    let (mut numerator, mut denominator): (u64, u64) = (0, 1);
    for &digit in part {
        let digit = char::from(digit).to_digit(10).ok_or(Fault::BadValue)?;
        if denominator < 1_000_000_000 {
            numerator = numerator * 10 + u64::from(digit);
            denominator *= 10;
        }
    }
    Ok((value << 16) + (numerator << 16) / denominator)
}

/// Bytes, in whole numbers or with the suffix `k`, `m` or `g`; an empty text is none.
fn bytes(text: &[u8]) -> Result<u64, Fault> {
    let (digits, shift) = match text {
        [digits @ .., b'k' | b'K'] => (digits, 10),
        [digits @ .., b'm' | b'M'] => (digits, 20),
        [digits @ .., b'g' | b'G'] => (digits, 30),
        digits => (digits, 0),
    };
    let value = u64::try_from(number(digits)?).map_err(|_| Fault::OutOfRange)?;
    match value.checked_mul(1 << shift) {
        Some(0) | None => Err(Fault::OutOfRange),
        Some(bytes) => Ok(bytes),
    }
}

/// Room for a path, its final NUL included.
pub const PATH_BYTES: usize = 512;

/// A path must be absolute, since a service's directory is seldom what its owner thinks, and every
/// `%` must be a `%p`.
fn check_path(value: &[u8]) -> Result<&[u8], Fault> {
    match expand_path(value, u32::MAX, &mut [0; PATH_BYTES]) {
        Some(_) if value.starts_with(b"/") => Ok(value),
        _ => Err(Fault::BadValue),
    }
}

/// Writes `pattern` with the process id in place of `%p` into `room`. None if it does not fit, holds
/// a NUL, or another `%`.
pub fn expand_path<'a>(pattern: &[u8], process_id: u32, room: &'a mut [u8; PATH_BYTES]) -> Option<&'a CStr> {
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
