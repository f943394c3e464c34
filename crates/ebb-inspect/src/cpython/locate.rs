//! Finds `_PyRuntime`, its version, and the data of the file that it is in.

use std::path::Path;

use object::{Object, ObjectKind, ObjectSymbol, ReadCache};

use super::Unsupported;
use crate::target::{Backing, Mapping, Target};

/// CPython in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The address of `_PyRuntime`.
    pub(super) runtime: u64,
    /// Major and minor version.
    pub(super) version: (u8, u8),
    /// The writable data of the file that defines it.
    pub(super) data: Vec<(u64, u64)>,
}

/// Looks into every mapped program and library whose name speaks of Python.
pub(super) fn runtime(target: &Target, mappings: &[Mapping]) -> Result<Place, Unsupported> {
    let mut seen: Vec<&Path> = Vec::new();
    for mapping in mappings {
        let Some(file) = mapping.file() else { continue };
        let name = file.file_name().map(|it| it.to_string_lossy());
        let is_python = name.is_some_and(|name| name.contains("python"));
        if !is_python || seen.contains(&file) {
            continue;
        }
        seen.push(file);
        if let Some((address, kind)) = symbol(&target.path_of(file)) {
            let base = match kind {
                ObjectKind::Executable => 0,
                // The first mapping shows the file's beginning, which has the address 0.
                _ => mapping.start.wrapping_sub(mapping.offset),
            };
            let version = version(file).ok_or_else(|| {
                Unsupported::Layout(format!("{}: no version in the name", file.display()))
            })?;
            return Ok(Place {
                runtime: base.wrapping_add(address),
                version,
                data: data(mappings, file),
            });
        }
    }
    Err(Unsupported::NoPython)
}

fn symbol(path: &Path) -> Option<(u64, ObjectKind)> {
    let data = ReadCache::new(std::fs::File::open(path).ok()?);
    let file = object::File::parse(&data).ok()?;
    if file.architecture() != object::Architecture::X86_64 || !file.is_64() {
        return None;
    }
    let runtime = file
        .dynamic_symbols()
        .find(|it| it.is_definition() && it.name() == Ok("_PyRuntime"))?;
    // A program with an address of its own is ET_EXEC; everything else moves.
    Some((runtime.address(), file.kind()))
}

/// The version in `python3.11`, `libpython3.8.so.1.0`. A debugging build (`3.11d`) or a free-threaded one
/// (`3.13t`) has other layouts.
fn version(path: &Path) -> Option<(u8, u8)> {
    let name = path.file_name()?.to_str()?;
    let rest = &name[name.find("python")? + "python".len()..];
    let (major, rest) = rest.split_once('.')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if matches!(rest.as_bytes().get(digits), Some(b'd' | b't')) {
        return None;
    }
    Some((major.parse().ok()?, rest[..digits].parse().ok()?))
}

/// The writable mappings of the file, and the one without a name that follows: its zeroed data.
fn data(mappings: &[Mapping], file: &Path) -> Vec<(u64, u64)> {
    let mut data: Vec<(u64, u64)> = Vec::new();
    for mapping in mappings.iter().filter(|mapping| mapping.is_own_data()) {
        let follows = data.last().is_some_and(|last| last.1 == mapping.start);
        let is_zeroed = mapping.backing == Backing::Anonymous && follows;
        if mapping.file() == Some(file) || is_zeroed {
            data.push((mapping.start, mapping.end));
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_version() {
        let of = |name: &str| version(Path::new(name));
        assert_eq!(of("/usr/bin/python3.11"), Some((3, 11)));
        assert_eq!(of("/lib/libpython3.8.so.1.0"), Some((3, 8)));
        assert_eq!(of("/lib/libpython3.13t.so.1.0"), None);
        assert_eq!(of("/usr/bin/python3.11d"), None);
        assert_eq!(of("/usr/bin/python"), None);
    }
}
