//! Which glibc a process runs on: the banner that every libc and every static program carries.

use std::fs;
use std::path::PathBuf;

use memchr::memmem;

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

/// Behind it in the banner come the distribution's words in brackets and the version.
const BANNER: &[u8] = b"GNU C Library ";
const VERSION: &[u8] = b"version ";
/// The banner's first line is shorter.
const BANNER_BYTES: usize = 200;
/// No libc or program with one inside is larger; a browser is.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The glibc of `target`: the shared one, else the one inside the program.
pub fn of(target: &Target, mappings: &[Mapping]) -> Option<Libc> {
    let named_libc = mappings
        .iter()
        .filter_map(Mapping::file)
        .find(|path| is_libc_name(path.file_name().and_then(|name| name.to_str())));
    if let Some(path) = named_libc {
        let version = of_file(target, path)?;
        return Some(Libc {
            path: path.to_owned(),
            version,
        });
    }
    let program = target.process().exe().ok()?;
    let program = mappings
        .iter()
        .filter_map(Mapping::file)
        .find(|path| **path == program)?;
    let version = of_file(target, program)?;
    Some(Libc {
        path: program.to_owned(),
        version,
    })
}

/// `libc.so.6`, or `libc-2.31.so` as it was called until 2.33.
fn is_libc_name(name: Option<&str>) -> bool {
    name.is_some_and(|name| {
        // A file that was replaced by an upgrade is mapped still.
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        name == "libc.so.6" || (name.starts_with("libc-2.") && name.ends_with(".so"))
    })
}

fn of_file(target: &Target, path: &std::path::Path) -> Option<Version> {
    let through_root = target.path_of(path);
    let open = |path: &std::path::Path| {
        let small = fs::metadata(path).is_ok_and(|data| data.len() <= MAX_FILE_BYTES);
        small.then(|| fs::read(path).ok()).flatten()
    };
    // A static program that was replaced on disk is still behind its link.
    let own = format!("/proc/{}/exe", target.pid());
    let is_program = target.process().exe().is_ok_and(|exe| exe == path);
    let bytes = if is_program {
        open(own.as_ref())
    } else {
        open(&through_root)
    };
    of_bytes(&bytes?)
}

/// The version in a file's bytes.
fn of_bytes(bytes: &[u8]) -> Option<Version> {
    let mut banners = memmem::find_iter(bytes, BANNER);
    banners.find_map(|at| {
        let line = &bytes[at..bytes.len().min(at + BANNER_BYTES)];
        let line = &line[..line
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(line.len())];
        let number = &line[memmem::rfind(line, VERSION)? + VERSION.len()..];
        let mut parts = std::str::from_utf8(number).ok()?.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts
            .next()?
            .trim_end_matches(|c: char| !c.is_ascii_digit());
        Some(Version {
            major,
            minor: minor.parse().ok()?,
        })
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
    fn a_replaced_libc_is_recognised() {
        assert!(is_libc_name(Some("libc.so.6 (deleted)")));
        assert!(is_libc_name(Some("libc-2.31.so")));
        assert!(!is_libc_name(Some("libc.so")));
        assert!(!is_libc_name(None));
    }
}
