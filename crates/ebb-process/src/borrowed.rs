//! Libraries for a program in the root of an image: what the image has, and whether its loader would take a library of this
//! machine.
//!
//! Used by trials of images. The loader refuses a library silently if it needs another that is missing, or a newer version
//! of its C library, so that is found out before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ebb_allocators::Allocator;
use ebb_inspect::file::NamedFile;
use object::read::elf::{FileHeader, SectionTable};
use object::{Endianness, ReadCache, elf};

use super::elf::Elf;
use super::library::system_folders;
use super::root::Root;

/// The path in `root` of a library of `allocator` that fits the program `target` of that root.
pub fn in_root(allocator: Allocator, target: &Elf, root: &Root) -> Option<PathBuf> {
    let sonames = allocator.sonames();
    let folders = system_folders(target);
    let mut places = folders.iter().flat_map(|folder| sonames.iter().map(move |name| folder.join(name)));
    let fits = |path: &PathBuf| {
        let elf = root.resolve(path).ok().and_then(|here| Elf::read(&here).ok());
        elf.is_some_and(|elf| elf.machine == target.machine && elf.defines.malloc)
    };
    places.find(fits)
}

/// Why the loader of `target`, a program in `root`, would refuse `library`, a file of this machine: what is missing there.
pub fn missing(library: &Path, target: &Elf, root: &Root) -> Option<String> {
    let Ok(elf) = Elf::read(library) else {
        return None;
    };
    let wanted = versions(library, Needed);
    let name = library.file_name().unwrap_or_default().display().to_string();
    elf.needed.iter().find_map(|needed| {
        let found = system_folders(target).iter().find_map(|it| root.resolve(&it.join(needed)).ok());
        let Some(found) = found else {
            return Some(format!("{name} of this machine needs {needed}, which the image does not have"));
        };
        let there = versions(&found, Defined).into_values().flatten().collect::<Vec<_>>();
        let newer = wanted.get(needed)?.iter().find(|version| !there.contains(version))?;
        Some(format!("{name} of this machine needs {newer} of {needed}, and the image's is older"))
    })
}

use Side::{Defined, Needed};

/// Which versions of an ELF file's symbols.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// It has them; under an empty name.
    Defined,
    /// It needs them; by the file that has them.
    Needed,
}

fn versions(path: &Path, side: Side) -> BTreeMap<String, Vec<String>> {
    let read = || -> Option<BTreeMap<String, Vec<String>>> {
        let data = ReadCache::new(NamedFile::open(path).ok()?);
        let header = elf::FileHeader64::<Endianness>::parse(&data).ok()?;
        let endian = header.endian().ok()?;
        of_sections(endian, &data, &header.sections(endian, &data).ok()?, side).ok()
    };
    read().unwrap_or_default()
}

fn of_sections<'data>(
    endian: Endianness,
    data: &'data ReadCache<NamedFile>,
    sections: &SectionTable<'data, elf::FileHeader64<Endianness>, &'data ReadCache<NamedFile>>,
    side: Side,
) -> object::Result<BTreeMap<String, Vec<String>>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if side == Needed {
        let Some((mut needs, link)) = sections.gnu_verneed(endian, data)? else {
            return Ok(found);
        };
        let strings = sections.strings(endian, data, link)?;
        while let Some((need, mut names)) = needs.next()? {
            let of_file = found.entry(text(need.file(endian, strings)?)).or_default();
            while let Some(name) = names.next()? {
                of_file.push(text(name.name(endian, strings)?));
            }
        }
        return Ok(found);
    }
    let Some((mut defined, link)) = sections.gnu_verdef(endian, data)? else {
        return Ok(found);
    };
    let strings = sections.strings(endian, data, link)?;
    let all = found.entry(String::new()).or_default();
    while let Some((_, mut names)) = defined.next()? {
        if let Some(name) = names.next()? {
            all.push(text(name.name(endian, strings)?));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The libraries that this process has loaded, in a root of their own or in an empty one.
    #[test]
    fn what_a_library_needs_is_looked_for_in_the_root() {
        let program = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        let loaded = |name: &str| {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let found = maps.split_whitespace().find(|word| word.contains(name));
            PathBuf::from(found.unwrap_or_else(|| panic!("{name} is not loaded")))
        };
        // libgcc_s, which every Rust test has, needs versions of libc.
        let (library, libc) = (loaded("/libgcc_s.so"), loaded("/libc.so.6"));
        assert_eq!(missing(&library, &program, &Root::own()), None);
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let said = missing(&library, &program, &root).unwrap();
        assert!(said.contains("needs libc.so.6, which the image does not have"), "{said}");
        // A library that is no libc, under its name: it is there, without the versions.
        let place = folder.path().join("usr/lib");
        std::fs::create_dir_all(&place).unwrap();
        std::fs::copy(&library, place.join("libc.so.6")).unwrap();
        let said = missing(&library, &program, &root).unwrap();
        assert!(said.contains("needs GLIBC_") && said.contains("is older"), "{said}");
        std::fs::copy(&libc, place.join("libc.so.6")).unwrap();
        assert_eq!(missing(&library, &program, &root), None);
    }
}
