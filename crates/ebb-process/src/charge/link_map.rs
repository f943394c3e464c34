//! The loader's own list of loaded objects, read from the memory of a process.
//!
//! The layout (`r_debug`, `link_map`) is the interface that debuggers use; glibc and musl share it.
//! The list is in the order in which symbols are looked up: program, preloaded objects, needed
//! objects, then what was loaded later.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use procfs::ProcError;
use procfs::process::{MMapPath, MemoryMap, Process};

use crate::elf::{Elf, GLIBC_LOADED_OBJECTS, MUSL_LOADED_OBJECTS, data_symbol};
use crate::memory::{self, NotHere};

/// More objects than any process has; a list that is longer changed under our eyes.
const MAX_OBJECTS: usize = 4096;
/// Of an object's path: PATH_MAX.
const MAX_NAME_BYTES: usize = 4 << 10;
/// Of an entry of the environment, and of all together: more than the kernel gives to a program that starts.
const MAX_ENTRY_BYTES: usize = 128 << 10;
const MAX_ENVIRONMENT_BYTES: usize = 8 << 20;
/// More program headers and entries of a dynamic section than any file has.
const MAX_HEADERS: u64 = 1024;
/// Divides every page.
const PIECE_BYTES: usize = 256;
/// `r_state` when the list is complete.
const RT_CONSISTENT: u64 = 0;

/// Why it is not known where a process takes its `malloc` from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It ended.
    #[error("the process ended")]
    Gone,
    /// Its mappings are closed to us, as those of a process that changed its user are.
    #[error("no right to read its memory map")]
    Permission,
    /// The loader has not finished.
    #[error("its libraries are not loaded yet")]
    Starting,
    /// It is of another word size than we are.
    #[error("a {0}-bit program: not read")]
    Bits(u8),
    /// What the loader left in its memory is in swap.
    #[error("its loader's list is in swap, which ebb does not read")]
    Swapped,
    /// Several mapped files define `malloc`, and their order cannot be read.
    #[error("several mapped files define malloc, and their order cannot be read")]
    Order,
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

pub(crate) fn reason(error: ProcError) -> Unreadable {
    match error {
        ProcError::NotFound(_) => Unreadable::Gone,
        ProcError::PermissionDenied(_) => Unreadable::Permission,
        ProcError::Io(error, _) => io_reason(&error),
        other => Unreadable::Other(other.to_string()),
    }
}

pub(crate) fn io_reason(error: &io::Error) -> Unreadable {
    match error.kind() {
        io::ErrorKind::NotFound => Unreadable::Gone,
        io::ErrorKind::PermissionDenied => Unreadable::Permission,
        _ if error.raw_os_error() == Some(libc::ESRCH) => Unreadable::Gone,
        _ => Unreadable::Other(error.to_string()),
    }
}

/// One object in the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    /// Its file, as the process names it.
    pub(super) path: PathBuf,
    /// What is added to the addresses in its file.
    pub(super) base: u64,
}

/// The loaded objects of `process`, whose program is `own` at `program`, in the loader's order.
pub(super) fn objects(process: &Process, own: &Elf, program: &Path) -> Result<Vec<Object>, Unreadable> {
    let memory = Memory::open(process, own)?;
    let debug = if own.is_loader() {
        debug_structure_of_loader(process, &memory, program)?
    } else {
        debug_structure(process, &memory)?
    };
    let word = memory.word_bytes;
    // struct r_debug { int version; link_map *map; addr brk; int state; ... }
    let state = memory.int(debug.wrapping_add(3 * word))?;
    let mut next = memory.word(debug.wrapping_add(word))?;
    if next == 0 || state != RT_CONSISTENT {
        return Err(Unreadable::Starting);
    }
    let cwd = process.cwd().map_err(reason)?;
    // struct link_map { addr l_addr; char *l_name; dyn *l_ld; link_map *next, *prev; }
    let mut objects = Vec::new();
    while next != 0 {
        if objects.len() == MAX_OBJECTS {
            return Err(Unreadable::Starting);
        }
        let path = if objects.is_empty() && !own.is_loader() {
            program.to_owned()
        } else {
            cwd.join(memory.text(memory.word(next.wrapping_add(word))?, MAX_NAME_BYTES)?)
        };
        let base = memory.word(next)?;
        objects.push(Object { path, base });
        next = memory.word(next.wrapping_add(3 * word))?;
    }
    Ok(objects)
}

/// The texts of the array of pointers that the variable at `address` points to (`char **environ`).
pub(super) fn strings(process: &Process, own: &Elf, address: u64) -> Result<Vec<Vec<u8>>, Unreadable> {
    let memory = Memory::open(process, own)?;
    let array = memory.word(address)?;
    let (mut texts, mut bytes) = (Vec::new(), 0);
    // A program that has emptied its environment has no array.
    while array != 0 && texts.len() < MAX_OBJECTS && bytes < MAX_ENVIRONMENT_BYTES {
        let offset = texts.len() as u64 * memory.word_bytes;
        let text = memory.word(array.wrapping_add(offset))?;
        if text == 0 {
            return Ok(texts);
        }
        let text = memory.text(text, MAX_ENTRY_BYTES)?.into_os_string().into_vec();
        bytes += text.len();
        texts.push(text);
    }
    if array == 0 {
        return Ok(texts);
    }
    Err(Unreadable::Starting)
}

/// The address of the loader's `r_debug`: it stores it in the program's `DT_DEBUG`.
fn debug_structure(process: &Process, memory: &Memory) -> Result<u64, Unreadable> {
    let auxv = process.auxv().map_err(reason)?;
    let value = |key: u64| auxv.get(&key).copied().ok_or(Unreadable::Starting);
    let headers = value(libc::AT_PHDR)?;
    let (count, size) = (value(libc::AT_PHNUM)?, value(libc::AT_PHENT)?);
    let word = memory.word_bytes;
    // p_vaddr is the third word on 64 bit (type and flags share the first), the third on 32 bit too.
    let mut base = None;
    let mut dynamic = None;
    for index in 0..count.min(MAX_HEADERS) {
        let header = headers.wrapping_add(index.wrapping_mul(size));
        let address = memory.word(header.wrapping_add(2 * word))?;
        match u32::try_from(memory.int(header)?) {
            Ok(libc::PT_PHDR) => base = Some(headers.wrapping_sub(address)),
            Ok(libc::PT_DYNAMIC) => dynamic = Some(address),
            _ => {}
        }
    }
    let (Some(base), Some(dynamic)) = (base, dynamic) else {
        return Err(Unreadable::Permission);
    };
    let mut entry = base.wrapping_add(dynamic);
    for _ in 0..MAX_HEADERS {
        let tag = memory.word(entry)?;
        let value = memory.word(entry.wrapping_add(word))?;
        match tag {
            DT_NULL => return Err(Unreadable::Permission),
            DT_DEBUG if value == 0 => return Err(Unreadable::Starting),
            DT_DEBUG => return Ok(value),
            _ => entry = entry.wrapping_add(2 * word),
        }
    }
    Err(Unreadable::Permission)
}

/// The same where the loader was started as the program: it has no `DT_DEBUG`, and a symbol instead.
fn debug_structure_of_loader(process: &Process, memory: &Memory, program: &Path) -> Result<u64, Unreadable> {
    let file = format!("/proc/{}/exe", process.pid());
    let maps = process.maps().map_err(reason)?;
    let is_start = |map: &&MemoryMap| map.offset == 0 && map.pathname == MMapPath::Path(program.to_owned());
    let base = maps.iter().find(is_start).ok_or(Unreadable::Starting)?.address.0;
    let address = |name| Some(base.wrapping_add(data_symbol(Path::new(&file), &[name])?));
    if let Some(address) = address(GLIBC_LOADED_OBJECTS) {
        return Ok(address);
    }
    let pointer = address(MUSL_LOADED_OBJECTS).ok_or(Unreadable::Permission)?;
    match memory.word(pointer)? {
        0 => Err(Unreadable::Starting),
        address => Ok(address),
    }
}

const DT_NULL: u64 = 0;
const DT_DEBUG: u64 = 21;

/// The memory of another process with our byte order.
struct Memory {
    bytes: memory::Memory,
    word_bytes: u64,
}

impl Memory {
    fn open(process: &Process, own: &Elf) -> Result<Self, Unreadable> {
        if own.machine.little_endian != cfg!(target_endian = "little") {
            return Err(Unreadable::Other("another byte order".to_owned()));
        }
        let bytes = memory::Memory::open(process.pid()).map_err(|error| io_reason(&error))?;
        Ok(Self { bytes, word_bytes: if own.machine.bits == 64 { 8 } else { 4 } })
    }

    fn word(&self, address: u64) -> Result<u64, Unreadable> {
        if self.word_bytes == 8 {
            let mut bytes = [0; 8];
            self.read(&mut bytes, address)?;
            Ok(u64::from_ne_bytes(bytes))
        } else {
            self.int(address)
        }
    }

    fn int(&self, address: u64) -> Result<u64, Unreadable> {
        let mut bytes = [0; 4];
        self.read(&mut bytes, address)?;
        Ok(u32::from_ne_bytes(bytes).into())
    }

    /// The text at `address`. Read in pieces that end with a page: what follows the text may lie on an
    /// unmapped one.
    fn text(&self, address: u64, most_bytes: usize) -> Result<PathBuf, Unreadable> {
        let mut text = Vec::new();
        while text.len() < most_bytes {
            let at = address.wrapping_add(text.len() as u64);
            let mut piece = [0; PIECE_BYTES];
            let to_its_end = PIECE_BYTES - (at % PIECE_BYTES as u64) as usize;
            let piece = &mut piece[..to_its_end];
            self.read(piece, at)?;
            let end = piece.iter().position(|&byte| byte == 0);
            text.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
            if end.is_some() {
                return Ok(PathBuf::from(OsString::from_vec(text)));
            }
        }
        Err(Unreadable::Starting)
    }

    fn read(&self, bytes: &mut [u8], address: u64) -> Result<(), Unreadable> {
        match self.bytes.read(bytes, address) {
            Ok(()) => Ok(()),
            Err(NotHere::Swapped) => Err(Unreadable::Swapped),
            // The process ended, or the list changed while we followed it.
            Err(NotHere::Io(error))
                if error.kind() == io::ErrorKind::UnexpectedEof || error.raw_os_error() == Some(libc::EIO) =>
            {
                Err(Unreadable::Starting)
            }
            Err(NotHere::Io(error)) => Err(io_reason(&error)),
        }
    }
}
