//! Which glibc a process runs on: the banner that every libc carries, or what a static program keeps of it.

use std::path::{Path, PathBuf};

use memchr::memmem;

use crate::file::NamedFile;
use crate::target::{Mapping, Target};

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// `2` of 2.36.
    pub major: u32,
    /// `36` of 2.36.
    pub minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)
    }
}

/// A file that is mapped in a process and holds a glibc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libc {
    /// The file, as the process knows it.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
}

/// After it in the banner come the distribution's words in brackets and the version.
const BANNER: &[u8] = b"GNU C Library ";
const VERSION: &[u8] = b"version ";
/// The banner's first line is shorter.
const BANNER_BYTES: usize = 200;
/// What the kernel appends to the name of a file that is no longer there.
const REPLACED: &str = " (deleted)";
/// No libc or program with one inside is larger; a browser is.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The glibc of `target`: the shared one, else the one inside the program.
pub fn of(target: &Target, mappings: &[Mapping]) -> Option<Libc> {
    let named_libc = mappings
        .iter()
        .filter_map(Mapping::file)
        .find(|path| is_libc_name(path.file_name().and_then(|name| name.to_str())));
    if let Some(path) = named_libc {
        let version = of_file(target, mappings, path)?;
        return Some(Libc { path: path.to_owned(), version });
    }
    let program = target.process().exe().ok()?;
    let program = mappings.iter().filter_map(Mapping::file).find(|path| **path == program)?;
    let version = of_file(target, mappings, program)?;
    Some(Libc { path: program.to_owned(), version })
}

/// `libc.so.6`, or `libc-2.31.so` as it was called until 2.33.
fn is_libc_name(name: Option<&str>) -> bool {
    name.is_some_and(|name| {
        // A file that was replaced by an upgrade is mapped still.
        let name = name.strip_suffix(REPLACED).unwrap_or(name);
        name == "libc.so.6" || (name.starts_with("libc-2.") && name.ends_with(".so"))
    })
}

fn of_file(target: &Target, mappings: &[Mapping], path: &Path) -> Option<Version> {
    let read = |path: &Path| NamedFile::read_all(path, MAX_FILE_BYTES).ok();
    // By its mapping, which an upgrade does not change. That needs a capability.
    let mapped = mappings.iter().find(|mapping| mapping.file() == Some(path))?;
    let by_mapping = format!("/proc/{}/map_files/{:x}-{:x}", target.pid(), mapped.start, mapped.end);
    // What replaced it is as a rule the same version with a fix; what is read is checked in any case.
    let name = path.to_str()?;
    let now = target.path_of(Path::new(name.strip_suffix(REPLACED).unwrap_or(name)));
    let is_program = target.process().exe().is_ok_and(|exe| exe == path);
    let bytes = if is_program {
        read(format!("/proc/{}/exe", target.pid()).as_ref())
    } else {
        read(by_mapping.as_ref()).or_else(|| read(&now))
    }?;
    of_bytes(&bytes).or_else(|| of_static(&bytes).filter(|_| is_program))
}

/// The version in a static program, which has no banner: the constant after gnu_get_libc_version, in a file
/// that has glibc's settings of malloc as well. `None` unless there is one such text.
fn of_static(bytes: &[u8]) -> Option<Version> {
    memmem::find(bytes, b"glibc.malloc.mmap_threshold")?;
    let mut found: Option<Version> = None;
    for at in memmem::find_iter(bytes, b"\x002.") {
        let minor = match bytes.get(at + 3..at + 6) {
            Some(&[tens @ b'3'..=b'9', ones @ b'0'..=b'9', 0]) => u32::from(tens - b'0') * 10 + u32::from(ones - b'0'),
            _ => continue,
        };
        let version = Version { major: 2, minor };
        if found.is_some_and(|other| other != version) {
            return None;
        }
        found = Some(version);
    }
    found
}

/// The version of the C library in the file at `path`.
pub fn version_of(path: &Path) -> Option<Version> {
    of_bytes(&NamedFile::read_all(path, MAX_FILE_BYTES).ok()?)
}

fn of_bytes(bytes: &[u8]) -> Option<Version> {
    let mut banners = memmem::find_iter(bytes, BANNER);
    banners.find_map(|at| {
        let line = &bytes[at..bytes.len().min(at + BANNER_BYTES)];
        let line = &line[..line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len())];
        let number = &line[memmem::rfind(line, VERSION)? + VERSION.len()..];
        let mut parts = std::str::from_utf8(number).ok()?.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.trim_end_matches(|c: char| !c.is_ascii_digit());
        Some(Version { major, minor: minor.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banners_of_distributions_are_read() {
        let read = |text: &str| of_bytes(text.as_bytes()).map(|version| version.to_string());
        let debian = "x\0GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCopyright";
        assert_eq!(read(debian).as_deref(), Some("2.36"));
        let fedora = "GNU C Library (GNU libc) development release version 2.42.9000.\n";
        assert_eq!(read(fedora).as_deref(), Some("2.42"));
        assert_eq!(read("GNU C Library is what this text is about"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn a_static_program_keeps_the_number() {
        let read = |bytes: &[u8]| of_static(bytes).map(|version| version.minor);
        let settings = b"glibc.malloc.mmap_threshold\0";
        let with = |more: &[u8]| read(&[settings, more].concat());
        assert_eq!(with(b"x\x002.36\0y\x002.36\0"), Some(36));
        assert_eq!(with(b"x\x002.36\0y\x002.41\0"), None, "which of the two");
        assert_eq!(with(b"x\x002.360\0 GLIBC_2.36\0 2.3"), None);
        assert_eq!(read(b"x\x002.36\0"), None, "another library's number");
    }

    #[test]
    fn a_replaced_libc_is_recognised() {
        assert!(is_libc_name(Some("libc.so.6 (deleted)")));
        assert!(is_libc_name(Some("libc-2.31.so")));
        assert!(!is_libc_name(Some("libc.so")));
        assert!(!is_libc_name(None));
    }
}
