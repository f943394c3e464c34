//! What is called in a process: glibc's malloc_trim, the locks that it takes, and the code by which a thread
//! comes back.

use std::os::unix::fs::FileExt;

use ebb_inspect::exact::usize_of;
use ebb_inspect::file::NamedFile;
use ebb_inspect::image::Image;
use ebb_inspect::memory::Memory;
use ebb_inspect::{Mapping, Target, Unreadable, Unsupported, glibc};
use nix::errno::Errno;

/// `mov $15, %rax; syscall`: what glibc's handlers return to.
const RESTORER: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
/// As much of a function's code is compared with the file.
const COMPARED_BYTES: usize = 32;
/// malloc_trim's padding: nothing is kept at the end of the main arena.
const NO_PADDING: u64 = 0;

/// A function of one argument in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its address.
    pub entry: u64,
    /// Its argument.
    pub argument: u64,
    /// Code that calls rt_sigreturn.
    pub restorer: u64,
    /// Locks of 32 bits that it takes, 0 while they are free.
    pub locks: Vec<u64>,
}

/// Why there is no function to call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// The heap is not one that we know.
    #[error(transparent)]
    Heap(#[from] Unsupported),
    /// A static program without it, or one that was stripped.
    #[error("malloc_trim was not found in it")]
    Absent,
    /// What is mapped is no longer the file of that name.
    #[error("its libc was replaced on disk since it started, so malloc_trim cannot be located")]
    Replaced,
}

impl From<Unreadable> for NotFound {
    fn from(error: Unreadable) -> Self {
        Self::Heap(error.into())
    }
}

impl Function {
    /// glibc's `malloc_trim(0)` in `target`.
    pub fn malloc_trim(target: &Target) -> Result<Self, NotFound> {
        let heap = glibc::place(target)?;
        let mappings = target.mappings()?;
        let image = Image::of(target, &mappings, &heap.file).ok_or(NotFound::Absent)?;
        let entry = image.function("malloc_trim").ok_or(NotFound::Absent)?;
        let code = |address: u64| mappings.iter().find(|mapping| mapping.contains(address) && mapping.executable);
        let mapping = code(entry).ok_or(NotFound::Absent)?;
        let file = target.open_mapped(mapping).map_err(|_| NotFound::Replaced)?;
        same_code(target, &file, mapping, entry)?;
        let restorer = restorer(&file, mapping).ok_or(NotFound::Absent)?;
        same_code(target, &file, mapping, restorer)?;
        Ok(Self { entry, argument: NO_PADDING, restorer, locks: heap.locks })
    }
}

/// Bytes of code that are searched for it at most, more than a libc has.
const MOST_CODE_BYTES: u64 = 64 << 20;

/// The first such code in a mapping.
fn restorer(file: &NamedFile, mapping: &Mapping) -> Option<u64> {
    if mapping.len() > MOST_CODE_BYTES {
        return None;
    }
    let mut code = vec![0; usize_of(mapping.len())];
    file.read_exact_at(&mut code, mapping.offset).ok()?;
    let at = code.windows(RESTORER.len()).position(|code| code == RESTORER)?;
    Some(mapping.start + at as u64)
}

/// Whether the process has at `address` what the file has. This is the one read that may bring a page into
/// the process: it is about to run there.
fn same_code(target: &Target, file: &NamedFile, mapping: &Mapping, address: u64) -> Result<(), NotFound> {
    let mut there = [0; COMPARED_BYTES];
    let mut here = [0; COMPARED_BYTES];
    target.memory().copy(&[(address, there.len())], &mut there)?;
    let offset = address - mapping.start + mapping.offset;
    let read = file.read_exact_at(&mut here, offset);
    match read.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0))) {
        Ok(()) if here == there => Ok(()),
        _ => Err(NotFound::Replaced),
    }
}
