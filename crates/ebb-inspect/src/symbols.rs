//! Where a program's or library's own symbols lie in the memory of a process.
//!
//! From the full symbol table of the mapped file, which a stripped file has not.

use std::fs::File;
use std::path::Path;

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::{Endianness, ReadCache};

use crate::target::{Mapping, Target};

/// Addresses in the process of the variables of the mapped file `path` whose names `wanted` picks. Empty for
/// a file without a symbol table, of 32 bits, or that cannot be read.
pub fn variables(
    target: &Target,
    mappings: &[Mapping],
    path: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Vec<(String, u64)> {
    let start = mappings
        .iter()
        .filter(|mapping| mapping.file() == Some(path))
        .map(|mapping| mapping.start.wrapping_sub(mapping.offset))
        .min();
    let Some(start) = start else {
        return Vec::new();
    };
    in_file(&target.path_of(path), start, wanted).unwrap_or_default()
}

fn in_file(path: &Path, start: u64, wanted: impl Fn(&str) -> bool) -> Option<Vec<(String, u64)>> {
    let data = ReadCache::new(File::open(path).ok()?);
    let header = FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &data).ok()?;
    let first = segments
        .iter()
        .find(|segment| segment.p_type(endian) == elf::PT_LOAD)?;
    // What an address in the file is moved by: nothing for a program of fixed addresses.
    let begin = first.p_vaddr(endian).wrapping_sub(first.p_offset(endian));
    let moved = start.wrapping_sub(begin);
    let sections = header.sections(endian, &data).ok()?;
    let symbols = sections.symbols(endian, &data, elf::SHT_SYMTAB).ok()?;
    let found = symbols.iter().filter_map(|symbol| {
        if symbol.st_type() != elf::STT_OBJECT || symbol.is_undefined(endian) {
            return None;
        }
        let name = std::str::from_utf8(symbols.symbol_name(endian, symbol).ok()?).ok()?;
        wanted(name).then(|| {
            let address = symbol.st_value(endian).wrapping_add(moved);
            (name.to_owned(), address)
        })
    });
    Some(found.collect())
}
