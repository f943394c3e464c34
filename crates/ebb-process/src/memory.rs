//! Bytes of a process by their address, but for what is in swap: that is not brought in for us.
//!
//! Used for the few words that the loader and ebbmalloc leave for others to read. Heaps are read by `ebb-inspect`, which reads
//! pages that are present and no other; here a page that was never touched is read as well, because what a library's file
//! says of it is meant.

use std::io;
use std::os::unix::fs::FileExt;

use ebb_inspect::memory::Presence;
use ebb_inspect::memory::process::ProcessMemory;
use ebb_inspect::{Memory as _, Unreadable};

/// The memory of one process.
#[derive(Debug)]
pub(super) struct Memory(ProcessMemory);

/// Why bytes were not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotHere {
    /// They lie on a page that is in swap.
    #[error("it is in swap, which ebb does not read")]
    Swapped,
    /// They cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Memory {
    /// Opens the memory of process `pid`: needs the right of a debugger.
    pub(super) fn open(pid: i32) -> io::Result<Self> {
        let memory = ProcessMemory::open(pid).map_err(|error| match error {
            Unreadable::Refused => io::ErrorKind::PermissionDenied.into(),
            Unreadable::Gone => io::ErrorKind::NotFound.into(),
            other => io::Error::other(other),
        })?;
        Ok(Self(memory))
    }

    /// Fills `bytes` with what is at `address`.
    pub(super) fn read(&self, bytes: &mut [u8], address: u64) -> Result<(), NotHere> {
        if self.is_swapped(bytes.len(), address) {
            return Err(NotHere::Swapped);
        }
        Ok(self.0.bytes().read_exact_at(bytes, address)?)
    }

    /// Fills `bytes` with what is at `address`, a page's first byte; with zeros for pages that are in swap.
    pub(super) fn read_all_but_swapped(&self, bytes: &mut [u8], address: u64) -> io::Result<()> {
        if !self.is_swapped(bytes.len(), address) {
            return self.0.bytes().read_exact_at(bytes, address);
        }
        let page_bytes = self.0.page_bytes();
        let pages = bytes.chunks_mut(page_bytes as usize);
        for (page, at) in pages.zip((address..).step_by(page_bytes as usize)) {
            match self.read(page, at) {
                Ok(()) => {}
                Err(NotHere::Swapped) => page.fill(0),
                Err(NotHere::Io(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a page of these is in swap. What cannot be asked about is not: reading it then fails or tells.
    fn is_swapped(&self, len: usize, address: u64) -> bool {
        let end = address.saturating_add(len as u64);
        Presence::read(&self.0, address, end).is_ok_and(|pages| pages.swapped_bytes() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_own_bytes_are_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        let memory = Memory::open(own).unwrap();
        let known = [7u8; 9000];
        let mut bytes = [0; 9000];
        memory.read(&mut bytes, known.as_ptr() as u64).unwrap();
        assert_eq!(bytes, known);
        // Nothing lies at the first page.
        assert!(matches!(memory.read(&mut bytes, 0), Err(NotHere::Io(_))));
        assert!(memory.read_all_but_swapped(&mut bytes, 0).is_err());
    }

    #[test]
    fn a_process_that_ended_has_none() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        child.wait().unwrap();
        let error = Memory::open(pid).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
