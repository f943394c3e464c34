//! The allocator's version as an ELF note, `.note.ebbmalloc`: `readelf -n` shows it, and `ebb` reads it from a file or
//! from the first page of a process's mapping of it.

const OWNER: &[u8; 12] = b"ebbmalloc\0\0\0";
/// What counts as the owner's length: its end is not padding.
const OWNER_BYTES: u32 = 10;
const TYPE: u32 = 1;
/// Bytes of a version with its end.
const TEXT_BYTES: u32 = 24;

/// The note, for a static in the section `.note.ebbmalloc`.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct Note {
    owner_bytes: u32,
    text_bytes: u32,
    kind: u32,
    owner: [u8; 12],
    text: [u8; TEXT_BYTES as usize],
}

impl Note {
    /// A note of this version.
    pub const fn new(version: &str) -> Self {
        let version = version.as_bytes();
        assert!(version.len() < TEXT_BYTES as usize);
        let mut text = [0; TEXT_BYTES as usize];
        let mut at = 0;
        while at < version.len() {
            text[at] = version[at];
            at += 1;
        }
        Self { owner_bytes: OWNER_BYTES, text_bytes: TEXT_BYTES, kind: TYPE, owner: *OWNER, text }
    }
}

/// An allocator's version, as its note has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version([u8; TEXT_BYTES as usize]);

impl Version {
    /// `0.1.0`.
    pub fn text(&self) -> &str {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(0);
        core::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

/// The version in `bytes`, the beginning of a file or of its mapping.
pub fn find(bytes: &[u8]) -> Option<Version> {
    let head: [[u8; 4]; 3] = [OWNER_BYTES, TEXT_BYTES, TYPE].map(u32::to_ne_bytes);
    let note = bytes
        .windows(12 + OWNER.len() + TEXT_BYTES as usize)
        .step_by(4)
        .find(|window| window[..12] == *head.as_flattened() && window[12..24] == *OWNER)?;
    let version = Version(note[24..].try_into().ok()?);
    let text = version.text();
    let is_version = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
    (!text.is_empty() && text.bytes().all(is_version)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_and_anything_else_is_not() {
        let mut bytes = [0; 512];
        assert_eq!(find(&bytes), None);
        for (at, word) in [(128, 10_u32), (132, 24), (136, 1)] {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[140..152].copy_from_slice(OWNER);
        assert_eq!(find(&bytes), None, "an empty version");
        bytes[152..157].copy_from_slice(b"0.1.0");
        assert_eq!(find(&bytes).unwrap().text(), "0.1.0");
        assert_eq!(find(&bytes[..160]), None, "cut off");
        bytes[153] = 0x1b;
        assert_eq!(find(&bytes), None, "no version");
    }
}
