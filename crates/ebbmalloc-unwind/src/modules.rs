//! What is mapped executable, and the unwind tables that belong to it.

use crate::Host;
use crate::elf::{self, Tables};
use crate::maps::{Lines, Mapping};
use core::ffi::CStr;

/// Executable mappings that are known; what lies beyond has no tables.
const MOST: usize = 1024;
/// Room for the names of their files: 600 of a hundred bytes.
const NAMES_BYTES: usize = 60 << 10;
/// Walks between two readings of the list, at most, for addresses that it does not know.
const PATIENCE_MOST: u32 = 4096;

/// Executable memory.
#[derive(Clone, Copy, Debug)]
struct Code {
    start: usize,
    end: usize,
    /// Where its file's first byte is mapped, 0 if it is nowhere.
    base: usize,
    /// Where its file's name begins in `names`: with an empty one if it has none.
    name: usize,
    /// Whether `tables` was asked for: a module's headers are read when one of its functions is first met, since each page of
    /// a file that is read becomes resident.
    is_read: bool,
    tables: Option<Tables>,
}

/// See the module.
pub struct Modules {
    codes: [Code; MOST],
    count: usize,
    /// Names of files, each with a zero after it.
    names: [u8; NAMES_BYTES],
    names_bytes: usize,
    /// Walks to let pass before the list is read again, and how many that were last time.
    wait: u32,
    patience: u32,
}

impl Modules {
    /// Nothing is known yet. All of it is zero.
    pub const fn new() -> Self {
        const NOTHING: Code = Code { start: 0, end: 0, base: 0, name: 0, is_read: false, tables: None };
        Self { codes: [NOTHING; MOST], count: 0, names: [0; NAMES_BYTES], names_bytes: 0, wait: 0, patience: 0 }
    }

    /// At the beginning of a walk.
    pub fn next_walk(&mut self) {
        self.wait = self.wait.saturating_sub(1);
    }

    /// Whether `pc` lies in executable memory that is known.
    pub fn knows(&self, pc: usize) -> bool {
        self.find(pc).is_some()
    }

    /// Whether two addresses lie in one executable mapping.
    pub fn are_one_code(&self, one: usize, other: usize) -> bool {
        self.find(one).is_some_and(|code| code.start <= other && other < code.end)
    }

    /// The tables for `pc`, as they are now; `None` if there are none.
    pub fn tables(&mut self, host: &impl Host, pc: usize) -> Option<Tables> {
        let at = self.index(pc)?;
        let code = &mut self.codes[at];
        let now = elf::tables(host, code.base, pc);
        if !code.is_read {
            (code.is_read, code.tables) = (true, now);
        }
        // The module may be gone, and another in its place.
        code.tables.filter(|_| code.tables == now)
    }

    /// The name of the file with the code at `pc`.
    pub fn name(&self, pc: usize) -> Option<&CStr> {
        let from = self.names.get(self.find(pc)?.name..)?;
        CStr::from_bytes_until_nul(from).ok().filter(|name| !name.is_empty())
    }

    /// Whether what is known of `pc` is out of date.
    pub fn is_stale(&self, host: &impl Host, pc: usize) -> bool {
        self.find(pc).is_some_and(|code| code.tables.is_some() && elf::tables(host, code.base, pc) != code.tables)
    }

    fn find(&self, pc: usize) -> Option<&Code> {
        self.index(pc).map(|at| &self.codes[at])
    }

    fn index(&self, pc: usize) -> Option<usize> {
        let known = &self.codes[..self.count];
        let at = known.partition_point(|code| code.end <= pc);
        known.get(at).is_some_and(|code| code.start <= pc).then_some(at)
    }

    /// Reads the list of mappings, because `pc` was not in it; not at every walk. True if it was read.
    pub fn refresh(&mut self, host: &impl Host, pc: usize) -> bool {
        if self.wait > 0 {
            return false;
        }
        // A name of no bytes stands at the beginning.
        (self.count, self.names_bytes) = (0, 1);
        let mut lines = Lines::new();
        let (mut file, mut base) = ((0, 0), 0);
        let read = host.read_maps(&mut |text| {
            lines.push(text, &mut |mapping: Mapping| {
                if mapping.offset == 0 {
                    (file, base) = (mapping.file, mapping.start);
                }
                let known = (mapping.file == file).then_some(base);
                if mapping.executable {
                    self.add(mapping, known.unwrap_or(0));
                }
            });
        });
        let helped = read && self.knows(pc);
        self.patience = if helped { 0 } else { (self.patience * 2 + 1).min(PATIENCE_MOST) };
        self.wait = self.patience;
        true
    }

    fn add(&mut self, mapping: Mapping, base: usize) {
        let Some(place) = self.codes.get_mut(self.count) else { return };
        let Mapping { start, end, name: text, .. } = mapping;
        let mut name = 0;
        if let Some((zero, room)) =
            self.names[self.names_bytes..].get_mut(..=text.len()).and_then(<[u8]>::split_last_mut)
        {
            room.copy_from_slice(text);
            *zero = 0;
            name = self.names_bytes;
            self.names_bytes += text.len() + 1;
        }
        *place = Code { start, end, base, name, is_read: false, tables: None };
        self.count += 1;
    }
}
