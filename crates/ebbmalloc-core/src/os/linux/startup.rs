//! What is asked of the kernel once: the page size, the environment as the kernel keeps it, whether
//! the program is privileged, and the file for published counters.
//!
//! No descriptor outlives the function that opened it.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use super::arch::nr;
use super::call::{Errno, call};
use super::{Linux, memory};

const AT_FDCWD: usize = (-100isize).cast_unsigned();
const O_RDWR: usize = 0o2;
pub(super) const O_CREAT: usize = 0o100;
const O_EXCL: usize = 0o200;
pub(super) const O_CLOEXEC: usize = 0o2000000;

impl Linux {
    /// Finds the page size by asking for advice of no effect at addresses of ever higher alignment:
    /// the kernel refuses an address that is not a multiple of its page, and needs no /proc for it.
    #[cold]
    pub(super) fn find_page_bytes(&self) -> usize {
        const CANDIDATES: [usize; 3] = [4096, 16384, 65536];
        const MADV_NORMAL: usize = 0;
        // SAFETY: advice on an empty range touches nothing.
        let aligned = |at: &usize| unsafe { call(nr::MADVISE, [*at, 0, MADV_NORMAL]) }.is_ok();
        let found = CANDIDATES.into_iter().find(aligned).unwrap_or(4096);
        self.page_bytes.store(found, Ordering::Relaxed);
        found
    }

    /// Reads as much of a file as `into` takes; how many bytes that was. None if it cannot be read.
    pub fn read_file(&self, path: &CStr, into: &mut [u8]) -> Option<usize> {
        let file = open(path, O_CLOEXEC, 0).ok()?;
        let mut filled = 0;
        while filled < into.len() {
            let rest = &mut into[filled..];
            // SAFETY: `rest` is writable for as many bytes as we say.
            match unsafe { call(nr::READ, [file, rest.as_mut_ptr() as usize, rest.len()]) } {
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) => break,
                Ok(bytes) => filled += bytes,
            }
        }
        close(file);
        Some(filled)
    }

    /// The target of a symbolic link, as much of it as `into` takes. None if there is no such link.
    pub fn read_link<'a>(&self, path: &CStr, into: &'a mut [u8]) -> Option<&'a [u8]> {
        let arguments = [AT_FDCWD, path.as_ptr() as usize, into.as_mut_ptr() as usize, into.len()];
        // SAFETY: `into` is writable for as many bytes as we say, `path` ends with a NUL.
        let bytes = unsafe { call(nr::READLINKAT, arguments) }.ok()?;
        into.get(..bytes)
    }

    /// Whether the program runs with more rights than its user (AT_SECURE), so that it must not
    /// trust its environment. Without /proc, whether it runs as somebody else.
    pub fn is_privileged(&self) -> bool {
        const AT_SECURE: usize = 23;
        const WORD: usize = size_of::<usize>();
        let mut vector = [0u8; 128 * WORD];
        let Some(bytes) = self.read_file(c"/proc/self/auxv", &mut vector) else {
            // SAFETY: no arguments, no effects.
            let id = |number| unsafe { call(number, []) };
            return id(nr::GETUID) != id(nr::GETEUID) || id(nr::GETGID) != id(nr::GETEGID);
        };
        let word = |entry: &[u8]| entry.try_into().map_or(0, usize::from_ne_bytes);
        let mut entries = vector[..bytes].chunks_exact(2 * WORD).map(|pair| pair.split_at(WORD));
        entries.find(|(kind, _)| word(kind) == AT_SECURE).is_none_or(|(_, value)| word(value) != 0)
    }

    /// Creates the file at `path` anew, readable by all, and maps its first `bytes` bytes, shared.
    /// Never one that was there before, which may be another user's or a link of theirs.
    pub fn map_new_file(&self, path: &CStr, bytes: usize) -> Option<NonNull<u8>> {
        const AT_REMOVE_FILE: usize = 0;
        // One left by an earlier process of the same id.
        // SAFETY: `path` ends with a NUL.
        let _ = unsafe { call(nr::UNLINKAT, [AT_FDCWD, path.as_ptr() as usize, AT_REMOVE_FILE]) };
        let file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o644).ok()?;
        // SAFETY: the file is ours.
        let sized = unsafe { call(nr::FTRUNCATE, [file, bytes]) };
        let mapped = sized.and_then(|_| memory::map_shared(file, bytes));
        close(file);
        NonNull::new(mapped.ok()? as *mut u8)
    }

    /// Writes all of `text` to an open descriptor; false if that fails.
    pub(super) fn write_descriptor(&self, descriptor: usize, text: &[u8]) -> bool {
        let mut rest = text;
        while !rest.is_empty() {
            // SAFETY: `rest` is readable for as many bytes as we say.
            match unsafe { call(nr::WRITE, [descriptor, rest.as_ptr() as usize, rest.len()]) } {
                Err(Errno::INTR) => {}
                Err(_) => return false,
                Ok(bytes) => rest = rest.get(bytes..).unwrap_or_default(),
            }
        }
        true
    }
}

pub(super) fn open(path: &CStr, flags: usize, mode: usize) -> Result<usize, Errno> {
    // SAFETY: `path` ends with a NUL.
    unsafe { call(nr::OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags, mode]) }
}

pub(super) fn close(descriptor: usize) {
    // SAFETY: the descriptor is one that this file opened.
    let _ = unsafe { call(nr::CLOSE, [descriptor]) };
}
