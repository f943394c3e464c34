//! Finds `_PyRuntime`, its version, and the data of the file that it is in.

use std::path::{Path, PathBuf};

use object::{Object, ObjectKind, ObjectSymbol, ReadCache};

use crate::file::NamedFile;
use crate::heap::Unsupported;
use crate::memory::Unreadable;
use crate::target::{Backing, Mapping, Target};

/// The message for a build whose objects have another layout and lie in mimalloc's pages.
pub(super) const FREE_THREADED_BUILD: &str =
    "a free-threaded build of CPython: ebb does not read its collector, and its objects are in its own mimalloc";

/// CPython in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The address of `_PyRuntime`.
    pub(super) runtime: u64,
    /// The address of `PyType_Type`, the type of types.
    pub(super) type_of_types: u64,
    /// The address of `PyCode_Type`, the type of code objects.
    pub(super) type_of_code: u64,
    /// Major and minor version.
    pub(super) version: (u8, u8),
    /// The writable data of the file that defines it.
    pub(super) data: Vec<(u64, u64)>,
}

/// A file that defines the runtime, and what its symbols say.
struct Defining<'a> {
    file: &'a Path,
    runtime: u64,
    type_of_types: u64,
    type_of_code: u64,
}

/// Where `_PyRuntime` is, its version, its data.
pub(super) fn runtime(target: &Target, mappings: &[Mapping]) -> Result<Place, Unsupported> {
    let found = defining(target, mappings).ok_or(Unsupported::NoPython)?;
    let version = version(found.file).map_err(|why| Unsupported::Build(format!("{}: {why}", found.file.display())))?;
    Ok(Place {
        runtime: found.runtime,
        type_of_types: found.type_of_types,
        type_of_code: found.type_of_code,
        version,
        data: data(mappings, found.file),
    })
}

/// The mapped file that defines the runtime, of any version and build.
pub fn file(target: &Target) -> Result<Option<PathBuf>, Unreadable> {
    let mappings = target.mappings()?;
    Ok(defining(target, &mappings).map(|found| found.file.to_owned()))
}

/// Looks into every mapped program and library whose name speaks of Python.
fn defining<'a>(target: &Target, mappings: &'a [Mapping]) -> Option<Defining<'a>> {
    let mut seen: Vec<&Path> = Vec::new();
    for mapping in mappings {
        let Some(file) = mapping.file() else { continue };
        let name = file.file_name().map(|it| it.to_string_lossy());
        let is_python = name.is_some_and(|name| name.contains("python"));
        if !is_python || seen.contains(&file) {
            continue;
        }
        seen.push(file);
        if let Some(([runtime, type_of_types, type_of_code], kind)) = symbols(&target.path_of(file)) {
            let base = match kind {
                ObjectKind::Executable => 0,
                // The first mapping shows the file's beginning, which has the address 0.
                _ => mapping.start.wrapping_sub(mapping.offset),
            };
            return Some(Defining {
                file,
                runtime: base.wrapping_add(runtime),
                type_of_types: base.wrapping_add(type_of_types),
                type_of_code: base.wrapping_add(type_of_code),
            });
        }
    }
    None
}

/// `_PyRuntime`, `PyType_Type` and `PyCode_Type` of a file that defines them.
fn symbols(path: &Path) -> Option<([u64; 3], ObjectKind)> {
    let data = ReadCache::new(NamedFile::open(path).ok()?);
    let file = object::File::parse(&data).ok()?;
    if file.architecture() != object::Architecture::X86_64 || !file.is_64() {
        return None;
    }
    let mut found = [None; 3];
    for symbol in file.dynamic_symbols().filter(|it| it.is_definition()) {
        match symbol.name() {
            Ok("_PyRuntime") => found[0] = Some(symbol.address()),
            Ok("PyType_Type") => found[1] = Some(symbol.address()),
            Ok("PyCode_Type") => found[2] = Some(symbol.address()),
            _ => {}
        }
    }
    // A program with an address of its own is ET_EXEC; everything else moves.
    Some(([found[0]?, found[1]?, found[2]?], file.kind()))
}

/// The version in `python3.11`, `libpython3.8.so.1.0`; or what it is otherwise. A debugging build (`3.11d`) or a
/// free-threaded one (`3.13t`) has other layouts.
fn version(path: &Path) -> Result<(u8, u8), &'static str> {
    let numbers = || {
        let name = path.file_name()?.to_str()?;
        let rest = &name[name.find("python")? + "python".len()..];
        let (major, rest) = rest.split_once('.')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (minor, build) = rest.split_at(digits);
        Some((major.parse().ok()?, minor.parse().ok()?, build))
    };
    match numbers().ok_or("no version in the name")? {
        (_, _, build) if build.starts_with('t') => Err(FREE_THREADED_BUILD),
        (_, _, build) if build.starts_with('d') => Err("ebb does not read a debug build of CPython"),
        (major, minor, _) => Ok((major, minor)),
    }
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
        assert_eq!(of("/usr/bin/python3.11"), Ok((3, 11)));
        assert_eq!(of("/lib/libpython3.8.so.1.0"), Ok((3, 8)));
        assert_eq!(of("/lib/libpython3.13t.so.1.0"), Err(FREE_THREADED_BUILD));
        assert_eq!(of("/usr/bin/python3.14td"), Err(FREE_THREADED_BUILD));
        assert!(of("/usr/bin/python3.11d").is_err_and(|why| why.contains("debug build")));
        assert!(of("/usr/bin/python").is_err_and(|why| why.contains("no version")));
    }
}
