//! Files that are written, and files of the kernel's that are read piece by piece.

use core::ffi::CStr;

use super::Linux;
use super::arch::nr;
use super::call::{Errno, call};
use super::signal::SignalSet;
use super::startup::{O_CLOEXEC, O_CREAT, close, open};

const O_WRONLY: usize = 1;
const O_TRUNC: usize = 0o1000;
const O_APPEND: usize = 0o2000;
const O_NONBLOCK: usize = 0o4000;
const O_NOFOLLOW: usize = if cfg!(target_arch = "aarch64") { 0o100000 } else { 0o400000 };

/// A file that is being written; closed when dropped.
#[derive(Debug)]
pub struct NewFile {
    descriptor: usize,
}

impl NewFile {
    /// Writes all of `text`; false if that fails.
    #[inline(never)]
    pub fn write(&self, text: &[u8]) -> bool {
        let mut rest = text;
        while !rest.is_empty() {
            // SAFETY: `rest` is readable for as many bytes as we say.
            let written = unsafe { call(nr::WRITE, [self.descriptor, rest.as_ptr() as usize, rest.len()]) };
            match written {
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) => return false,
                Ok(bytes) => rest = rest.get(bytes..).unwrap_or_default(),
            }
        }
        true
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        close(self.descriptor);
    }
}

impl Linux {
    /// Opens the file at `path` to be written from its beginning; one that is there becomes empty.
    pub fn create_file(&self, path: &CStr) -> Option<NewFile> {
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644).ok()?;
        Some(NewFile { descriptor })
    }

    /// Opens the file at `path` to be written to at its end, for this user alone; not through a link, and no pipe without
    /// a reader.
    pub fn append_to_file(&self, path: &CStr) -> Option<NewFile> {
        const AT_END: usize = O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | O_NONBLOCK | O_NOFOLLOW;
        Some(NewFile { descriptor: open(path, AT_END, 0o600).ok()? })
    }

    /// Calls `each` with the text of a file, in pieces of at most `room`; false if it cannot be read to
    /// its end.
    pub fn read_pieces(&self, path: &CStr, room: &mut [u8], each: &mut dyn FnMut(&[u8])) -> bool {
        let Ok(file) = open(path, O_CLOEXEC, 0) else {
            return false;
        };
        let complete = loop {
            // SAFETY: `room` is writable for as many bytes as we say.
            match unsafe { call(nr::READ, [file, room.as_mut_ptr() as usize, room.len()]) } {
                Err(Errno::INTR) => {}
                Ok(0) => break true,
                Err(_) => break false,
                Ok(bytes) => each(room.get(..bytes).unwrap_or_default()),
            }
        };
        close(file);
        complete
    }

    /// Calls `work` with what fills a buffer from a place of the file at `path` on, true if that could be read; not if it
    /// cannot be opened. A pipe is not waited for.
    pub fn with_file(&self, path: &CStr, work: impl FnOnce(&dyn Fn(usize, &mut [u8]) -> bool)) {
        let Ok(file) = open(path, O_CLOEXEC | O_NONBLOCK, 0) else { return };
        work(&|at, room| {
            let arguments = [file, room.as_mut_ptr() as usize, room.len(), at];
            // SAFETY: `room` is writable for as many bytes as we say.
            let read = unsafe { call(nr::PREAD64, arguments) };
            read == Ok(room.len())
        });
        close(file);
    }

    /// Whether the eight bytes at `address` can be read. The kernel is asked to set a signal mask from
    /// there in a way that there is none: it reads before it refuses.
    pub fn is_readable(&self, address: usize) -> bool {
        const NO_SUCH_WAY: usize = usize::MAX;
        let arguments = [NO_SUCH_WAY, address, 0, size_of::<SignalSet>()];
        // SAFETY: the call changes nothing.
        let answer = unsafe { call(nr::RT_SIGPROCMASK, arguments) };
        answer == Err(Errno::INVAL)
    }

    /// Ends the process at once, with a status.
    pub fn exit(&self, status: usize) -> ! {
        loop {
            // SAFETY: never returns.
            let _ = unsafe { call(nr::EXIT_GROUP, [status]) };
        }
    }
}
