//! Where a program's or library's own symbols lie in the memory of a process.
//!
//! Variables from the full symbol table of the mapped file, which a stripped file has not; functions from that and
//! from the table of what a library offers, which all have.

use std::fs::File;
use std::path::Path;

use object::elf::{self, FileHeader64, SectionType, SymbolType};
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
    let find = || {
        let file = File::open(target.path_of(path)).ok()?;
        let start = start_of(mappings, path)?;
        in_file(&file, start, elf::SHT_SYMTAB, elf::STT_OBJECT, wanted)
    };
    find().unwrap_or_default()
}

/// The address of the function `name` of the mapped file `path`, if it has one.
pub fn function(target: &Target, mappings: &[Mapping], path: &Path, name: &str) -> Option<u64> {
    let start = start_of(mappings, path)?;
    let mapping = mappings
        .iter()
        .find(|mapping| mapping.file() == Some(path))?;
    let file = target.open_mapped(mapping).ok()?;
    let find = |table| in_file(&file, start, table, elf::STT_FUNC, |it| it == name)?.pop();
    let found = find(elf::SHT_DYNSYM).or_else(|| find(elf::SHT_SYMTAB));
    found.map(|(_, address)| address)
}

fn start_of(mappings: &[Mapping], path: &Path) -> Option<u64> {
    mappings
        .iter()
        .filter(|mapping| mapping.file() == Some(path))
        .map(|mapping| mapping.start.wrapping_sub(mapping.offset))
        .min()
}

fn in_file(
    file: &File,
    start: u64,
    table: SectionType,
    kind: SymbolType,
    wanted: impl Fn(&str) -> bool,
) -> Option<Vec<(String, u64)>> {
    let data = &ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let first = segments
        .iter()
        .find(|segment| segment.p_type(endian) == elf::PT_LOAD)?;
    // What an address in the file is moved by: nothing for a program of fixed addresses.
    let begin = first.p_vaddr(endian).wrapping_sub(first.p_offset(endian));
    let moved = start.wrapping_sub(begin);
    let sections = header.sections(endian, data).ok()?;
    let symbols = sections.symbols(endian, data, table).ok()?;
    let found = symbols.iter().filter_map(|symbol| {
        if symbol.st_type() != kind || symbol.is_undefined(endian) {
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
