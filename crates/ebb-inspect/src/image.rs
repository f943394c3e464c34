//! A program or library as it lies in a process: where its data is, which variables and functions have a name, which
//! texts it holds.

use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf::{self, FileHeader64, SectionType, SymbolType};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::{Endianness, ReadCache};

use crate::file::NamedFile;
use crate::target::{Mapping, Target};

/// A file is searched in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// A mapped program or library of 64 bits.
#[derive(Debug)]
pub struct Image {
    file: NamedFile,
    /// What an address in the file is moved by: nothing for a program of fixed addresses.
    moved: u64,
    /// Its writable segments in the process, what the file does not hold (`.bss`) included.
    data: Vec<(u64, u64)>,
}

impl Image {
    /// The mapped file `path` of `target`; `None` for one of 32 bits, or that cannot be read.
    pub fn of(target: &Target, mappings: &[Mapping], path: &Path) -> Option<Self> {
        let mut of_file = mappings.iter().filter(|mapping| mapping.file() == Some(path));
        let mapping = of_file.next()?;
        let start =
            std::iter::once(mapping).chain(of_file).map(|mapping| mapping.start.wrapping_sub(mapping.offset)).min()?;
        let is_program = target.process().exe().is_ok_and(|exe| exe == path);
        let file = match is_program {
            // Open to all who may look at the process, also if another file has its name now.
            true => NamedFile::open(Path::new(&format!("/proc/{}/exe", target.pid()))),
            false => target.open_mapped(mapping),
        };
        Self::read(file.ok()?, start)
    }

    fn read(file: NamedFile, start: u64) -> Option<Self> {
        let data = &ReadCache::new(&file);
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        let loads = || segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
        let first = loads().next()?;
        let begin = first.p_vaddr(endian).wrapping_sub(first.p_offset(endian));
        let moved = start.wrapping_sub(begin);
        let data = loads()
            .filter(|segment| segment.p_flags(endian).0 & elf::PF_W.0 != 0)
            .map(|segment| {
                let from = segment.p_vaddr(endian).wrapping_add(moved);
                (from, from.saturating_add(segment.p_memsz(endian)))
            })
            .collect();
        Some(Self { file, moved, data })
    }

    /// Its writable segments in the process.
    pub fn data(&self) -> &[(u64, u64)] {
        &self.data
    }

    /// Addresses in the process of the variables whose names `wanted` picks: those of the full table, which a
    /// stripped file has not, and the exported ones.
    pub fn variables(&self, wanted: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
        let tables = [elf::SHT_SYMTAB, elf::SHT_DYNSYM];
        let find = |table| self.symbols(table, elf::STT_OBJECT, &wanted);
        let mut all = tables.map(|table| find(table).unwrap_or_default()).concat();
        all.sort();
        all.dedup();
        all
    }

    /// The address in the process of the function `name`, if it has one.
    pub fn function(&self, name: &str) -> Option<u64> {
        let find = |table| self.symbols(table, elf::STT_FUNC, |it| it == name)?.pop();
        let found = find(elf::SHT_DYNSYM).or_else(|| find(elf::SHT_SYMTAB));
        found.map(|(_, address)| address)
    }

    fn symbols(
        &self,
        table: SectionType,
        kind: SymbolType,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<Vec<(String, u64)>> {
        let data = &ReadCache::new(&self.file);
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let symbols = sections.symbols(endian, data, table).ok()?;
        let found = symbols.iter().filter_map(|symbol| {
            if symbol.st_type() != kind || symbol.is_undefined(endian) {
                return None;
            }
            let name = std::str::from_utf8(symbols.symbol_name(endian, symbol).ok()?).ok()?;
            wanted(name).then(|| {
                let address = symbol.st_value(endian).wrapping_add(self.moved);
                (name.to_owned(), address)
            })
        });
        Some(found.collect())
    }

    /// What `wanted` finds first in the file's bytes, which it is given in pieces; each begins with the last
    /// `overlap` bytes of the one before, so that a text across the border is found.
    pub fn search<T>(&self, overlap: usize, mut wanted: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
        let mut piece = vec![0; overlap + PIECE_BYTES];
        let (mut kept, mut offset) = (0, 0);
        loop {
            let read = self.file.read_at(&mut piece[kept..], offset).ok()?;
            if read == 0 {
                return None;
            }
            offset += read as u64;
            let len = kept + read;
            if let Some(found) = wanted(&piece[..len]) {
                return Some(found);
            }
            kept = overlap.min(len);
            piece.copy_within(len - kept..len, 0);
        }
    }
}
