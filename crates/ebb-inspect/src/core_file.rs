//! A core dump as a process is read: its memory, its mappings, the signal that ended it, its registers.
//!
//! Pages that the kernel did not write, or that a limit cut off, are absent; but those of one file that nothing was written
//! to can be read from the file ([`Core::read_file_of`]).

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ebb_stats::layout::Place;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};

use crate::exact::usize_of;
use crate::file::NamedFile;
use crate::memory::{Memory, Page, Unreadable};
use crate::target::{Backing, Mapping};

/// The machine of this build: cores of others have other registers.
const MACHINE: elf::Machine = if cfg!(target_arch = "x86_64") { elf::EM_X86_64 } else { elf::EM_AARCH64 };
/// Where in a thread's note its registers begin, and its id.
const REGISTERS_AT: usize = 112;
const THREAD_AT: usize = 32;
const NT_SIGINFO: u32 = 0x5349_4749;

/// The registers in the order of the kernel's structure.
#[cfg(target_arch = "x86_64")]
const REGISTERS: &[&str] = &[
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi", "", "rip",
    "", "", "rsp",
];
#[cfg(not(target_arch = "x86_64"))]
const REGISTERS: &[&str] = &[
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp", "pc",
];

/// Why a file is not a core that can be read.
#[derive(Debug, thiserror::Error)]
pub enum NotACore {
    /// It cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Not an ELF file of 64 bits, or one whose headers are cut off.
    #[error("is not a core dump of a 64-bit process, or is cut off in its headers")]
    NoElf,
    /// A program or a library.
    #[error("is an ELF file, but not a core dump")]
    NoCore,
    /// Of a process on another processor.
    #[error("is a core dump of another architecture (ELF machine {0})")]
    OtherMachine(u16),
}

/// The signal that ended the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// The address that was touched, for signals of the processor.
    pub address: Option<u64>,
}

#[derive(Debug)]
struct Load {
    start: u64,
    end: u64,
    /// Bytes from `start` on that are in the file, and where.
    held: u64,
    offset: u64,
    flags: u32,
}

/// A core dump.
#[derive(Debug)]
pub struct Core {
    file: NamedFile,
    loads: Vec<Load>,
    mappings: Vec<Mapping>,
    /// The file that its pages are read from which are not here.
    mapped: Option<(PathBuf, NamedFile)>,
    /// Bytes of its pages that the file should have and has not.
    pub missing: u64,
    /// See [`Signal`].
    pub signal: Option<Signal>,
    /// The id of the thread that the signal ended.
    pub thread: Option<i32>,
    /// The registers of that thread.
    pub registers: Vec<(&'static str, u64)>,
}

impl Core {
    /// Opens the core at `path`.
    pub fn open(path: &Path) -> Result<Self, NotACore> {
        let file = NamedFile::open(path)?;
        let len = std::fs::metadata(path)?.len();
        let mut core = Self {
            file: NamedFile::open(path)?,
            loads: Vec::new(),
            mappings: Vec::new(),
            mapped: None,
            missing: 0,
            signal: None,
            thread: None,
            registers: Vec::new(),
        };
        let mut files = Vec::new();
        let data = &ReadCache::new(&file);
        let header = FileHeader64::<Endianness>::parse(data).map_err(|_| NotACore::NoElf)?;
        let endian = header.endian().map_err(|_| NotACore::NoElf)?;
        if header.e_type(endian) != elf::ET_CORE {
            return Err(NotACore::NoCore);
        }
        let machine = header.e_machine(endian);
        if machine != MACHINE || endian != Endianness::Little {
            return Err(NotACore::OtherMachine(machine.0));
        }
        for segment in header.program_headers(endian, data).map_err(|_| NotACore::NoElf)? {
            if segment.p_type(endian) == elf::PT_LOAD {
                core.add(segment, endian, len);
            }
            let mut notes = segment.notes(endian, data).ok().flatten();
            while let Some(Ok(Some(note))) = notes.as_mut().map(|notes| notes.next()) {
                match note.n_type(endian).0 {
                    1 if core.registers.is_empty() => core.read_thread(note.desc()),
                    NT_SIGINFO if core.signal.is_none() => core.signal = signal(note.desc()),
                    0x4649_4c45 => files = mapped_files(note.desc()),
                    _ => {}
                }
            }
        }
        core.loads.sort_unstable_by_key(|load| load.start);
        core.mappings = core.loads.iter().map(|load| mapping(load, &files)).collect();
        Ok(core)
    }

    /// Its mappings, in the order of addresses.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// Opens the mapped file `path`: its pages that the dump lacks are read from it. False if the file is gone, or has
    /// changed since the dump.
    pub fn read_file_of(&mut self, path: &Path) -> bool {
        let first = self.mappings.iter().find(|it| it.file() == Some(path) && it.offset == 0);
        let (Some(first), Ok(file)) = (first, NamedFile::open(path)) else {
            return false;
        };
        let (mut here, mut there) = ([0; 4096], [0; 4096]);
        let is_same = self.copy(&[(first.start, here.len())], &mut here).is_ok()
            && file.read_exact_at(&mut there, 0).is_ok()
            && here == there;
        if is_same {
            self.mapped = Some((path.to_owned(), file));
        }
        is_same
    }

    /// The file that the page at `address` can be read from, and where.
    fn in_file(&self, address: u64) -> Option<(&NamedFile, u64)> {
        let (path, file) = self.mapped.as_ref()?;
        let at = self.mappings.partition_point(|mapping| mapping.end <= address);
        let is_unwritten = |it: &&Mapping| !it.writable && it.file() == Some(path) && it.contains(address);
        let mapping = self.mappings.get(at).filter(is_unwritten)?;
        Some((file, (address - mapping.start).saturating_add(mapping.offset)))
    }

    fn add(&mut self, segment: &ProgramHeader64<Endianness>, endian: Endianness, len: u64) {
        let (start, offset) = (segment.p_vaddr(endian), segment.p_offset(endian));
        let wanted = segment.p_filesz(endian).min(segment.p_memsz(endian));
        let held = wanted.min(len.saturating_sub(offset));
        self.missing = self.missing.saturating_add(wanted - held);
        let end = start.saturating_add(segment.p_memsz(endian));
        self.loads.push(Load { start, end, held, offset, flags: segment.p_flags(endian).0 });
    }

    fn read_thread(&mut self, note: &[u8]) {
        self.thread = int(note, THREAD_AT);
        let words = note.get(REGISTERS_AT..).unwrap_or_default().as_chunks().0;
        let named = REGISTERS.iter().zip(words).filter(|(name, _)| !name.is_empty());
        self.registers = named.map(|(name, word)| (*name, u64::from_le_bytes(*word))).collect();
    }

    fn load(&self, address: u64) -> Option<&Load> {
        let at = self.loads.partition_point(|load| load.end <= address);
        self.loads.get(at).filter(|load| load.start <= address)
    }
}

impl Memory for Core {
    fn page_bytes(&self) -> u64 {
        procfs::page_size()
    }

    fn pages(&self, start: u64, pages: &mut [Page]) -> Result<(), Unreadable> {
        for (index, page) in (0u64..).zip(pages) {
            let at = start.saturating_add(index * self.page_bytes());
            let is_held = |load: &&Load| (at - load.start).saturating_add(self.page_bytes()) <= load.held;
            let is_here = self.load(at).filter(is_held).is_some() || self.in_file(at).is_some();
            *page = if is_here { Page::Present } else { Page::Absent };
        }
        Ok(())
    }

    fn copy(&self, ranges: &[(u64, usize)], out: &mut [u8]) -> Result<(), Unreadable> {
        let mut rest = out;
        for &(address, len) in ranges {
            let (mut head, tail) = rest.split_at_mut(len);
            rest = tail;
            let mut at = address;
            while !head.is_empty() {
                let load = self.load(at).filter(|load| at - load.start < load.held);
                let (file, offset, most) = match (load, self.in_file(at)) {
                    (Some(load), _) => {
                        let within = at - load.start;
                        (&self.file, load.offset.saturating_add(within), load.held - within)
                    }
                    (None, Some((file, offset))) => (file, offset, self.page_bytes() - at % self.page_bytes()),
                    (None, None) => return Err(Unreadable::Absent(at)),
                };
                let len = head.len().min(usize::try_from(most).unwrap_or(usize::MAX));
                let (piece, after) = head.split_at_mut(len);
                // A file may end within its last page.
                let read = file.read_at(piece, offset);
                let read = read.map_err(|error| Unreadable::Other(error.to_string()))?;
                piece[read..].fill(0);
                head = after;
                at = at.saturating_add(len as u64);
            }
        }
        Ok(())
    }
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..at + 4)?.try_into().ok().map(i32::from_le_bytes)
}

fn word(bytes: &[u8], index: usize) -> Option<u64> {
    bytes.as_chunks().0.get(index).copied().map(u64::from_le_bytes)
}

/// The kernel's siginfo.
fn signal(note: &[u8]) -> Option<Signal> {
    let (number, code) = (int(note, 0)?, int(note, 8)?);
    // SIGILL, SIGBUS, SIGFPE, SIGSEGV; not from another process.
    let is_fault = [4, 7, 8, 11].contains(&number) && code > 0;
    Some(Signal { number, address: if is_fault { word(note, 2) } else { None } })
}

/// The kernel's note of mapped files: first address, the one after the last, offset, name.
fn mapped_files(note: &[u8]) -> Vec<(u64, u64, u64, PathBuf)> {
    let count = usize::try_from(word(note, 0).unwrap_or(0)).unwrap_or(usize::MAX);
    let names_at = count.checked_mul(24).and_then(|bytes| bytes.checked_add(16));
    let Some(names) = names_at.and_then(|at| note.get(at..)) else {
        return Vec::new();
    };
    let page_bytes = word(note, 1).unwrap_or(1);
    let names = names.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    let files = names.zip(0..count).filter_map(|(name, index)| {
        let field = |at: usize| word(note, 2 + index * 3 + at);
        let offset = field(2)?.saturating_mul(page_bytes);
        Some((field(0)?, field(1)?, offset, PathBuf::from(&*name)))
    });
    files.collect()
}

fn mapping(load: &Load, files: &[(u64, u64, u64, PathBuf)]) -> Mapping {
    let file = files.iter().find(|(start, end, ..)| (*start..*end).contains(&load.start));
    let may = |flag: u32| load.flags & flag != 0;
    Mapping {
        start: load.start,
        end: load.end,
        readable: may(4),
        writable: may(2),
        executable: may(1),
        shared: false,
        locked: false,
        offset: file.map_or(0, |(start, _, offset, _)| offset.saturating_add(load.start - start)),
        backing: file.map_or(Backing::Anonymous, |(.., path)| Backing::File(path.clone())),
    }
}

/// Bytes of `mapping` at most that may hold the allocator's layout.
const MOST_DATA_BYTES: u64 = 4 << 20;

/// The layout of the ebbmalloc in the data of a mapped file, and that file.
pub fn find_layout<'a>(memory: &dyn Memory, mappings: &'a [Mapping]) -> Option<(Place, &'a Path)> {
    let may_have = |it: &&Mapping| it.is_own_data() && it.file().is_some();
    mappings.iter().filter(may_have).find_map(|mapping| {
        let page_bytes = memory.page_bytes();
        let mut bytes = vec![0; usize_of(mapping.len().min(MOST_DATA_BYTES))];
        for (at, page) in (mapping.start..).step_by(usize_of(page_bytes)).zip(bytes.chunks_mut(usize_of(page_bytes))) {
            let mut state = [Page::Absent];
            if memory.pages(at, &mut state).is_ok() && state[0] == Page::Present {
                // What cannot be read stays zero.
                let _ = memory.copy(&[(at, page.len())], page);
            }
        }
        Some((ebb_stats::layout::find(&bytes)?, mapping.file()?))
    })
}
