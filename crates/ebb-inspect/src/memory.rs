//! Pages and words of a process's memory, of those pages only that are there.
//!
//! [`Memory`] is the seam between the readers of heaps and the process: [`process`] is the real
//! one, `fake` one that a test makes up.

use std::io;

#[cfg(any(test, feature = "fake-memory"))]
pub mod fake;
mod page_scan;
mod presence;
pub mod process;
mod reader;

pub use presence::Presence;
pub use reader::{Reader, words};

/// Where a page of a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Nowhere: never touched, or returned. It reads as zero, and reading it would map it.
    Absent,
    /// In physical memory.
    Present,
    /// In swap. Reading it would bring it in.
    Swapped,
}

/// Why memory of a process could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The process ended, or started another program.
    #[error("the process ended while it was read")]
    Gone,
    /// The time that the look may take is over.
    #[error("it has more memory than a look can read in {} s", crate::LOOK_WITHIN.as_secs())]
    Late,
    /// The kernel refuses us; [`crate::permission`] says which gate it was.
    #[error("no right to read its memory")]
    Refused,
    /// There is no mapping (any more) at this address.
    #[error("nothing is mapped at {0:#x}")]
    Unmapped(u64),
    /// The page at this address was never touched, or was returned.
    #[error("the page at {0:#x} is not present")]
    Absent(u64),
    /// The page at this address is in swap, and was not brought in.
    #[error("the page at {0:#x} is in swap")]
    Swapped(u64),
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

impl Unreadable {
    /// Whether no further read of this process can succeed.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Gone | Self::Late | Self::Refused | Self::Other(_))
    }

    pub(crate) fn from_io(error: &io::Error) -> Self {
        Self::from_io_at(error, 0)
    }

    /// What `error` means of a read at `address`.
    pub fn from_io_at(error: &io::Error, address: u64) -> Self {
        use nix::errno::Errno;
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ESRCH | Errno::ENOENT) => Self::Gone,
            Some(Errno::EPERM | Errno::EACCES) => Self::Refused,
            Some(Errno::EFAULT | Errno::EIO) => Self::Unmapped(address),
            Some(other) => Self::Other(other.desc().to_owned()),
            None => Self::Other(error.to_string()),
        }
    }
}

/// What could not be read for this time is `None`; what can never be read stays an error.
pub(crate) fn unless_torn<T>(read: Result<T, Unreadable>) -> Result<Option<T>, Unreadable> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_final() => Err(error),
        Err(_) => Ok(None),
    }
}

/// The memory of one process.
pub trait Memory: std::fmt::Debug {
    /// Bytes of a page.
    fn page_bytes(&self) -> u64;

    /// Where the pages from `start` (a page's first byte) on are. Changes nothing in the process.
    fn pages(&self, start: u64, pages: &mut [Page]) -> Result<(), Unreadable>;

    /// Calls `each` with first address and end of runs of pages of `start..end` (pages' first bytes) that are not absent, by address.
    /// Runs may touch. Changes nothing in the process.
    fn resident(&self, start: u64, end: u64, each: &mut dyn FnMut(u64, u64, Page)) -> Result<(), Unreadable> {
        by_pages(self, start, end, each)
    }

    /// Copies `ranges` (address and length), one after the other, into `out`, which has exactly
    /// their length. The caller has seen that their pages are present. Ranges that lost their mapping meanwhile
    /// are [`Unreadable::Unmapped`].
    fn copy(&self, ranges: &[(u64, usize)], out: &mut [u8]) -> Result<(), Unreadable>;
}

/// Pages asked about in one call.
const PAGES_A_CALL: usize = 8192;

/// [`Memory::resident`], by asking about each page: takes time that follows the length of `start..end`.
pub fn by_pages<M: Memory + ?Sized>(
    memory: &M,
    start: u64,
    end: u64,
    each: &mut dyn FnMut(u64, u64, Page),
) -> Result<(), Unreadable> {
    let page_bytes = memory.page_bytes();
    let pages_left = |at: u64| usize::try_from(end.saturating_sub(at).div_ceil(page_bytes));
    let mut buffer = vec![Page::Absent; PAGES_A_CALL.min(pages_left(start).unwrap_or(usize::MAX))];
    let mut at = start;
    while at < end {
        let len = PAGES_A_CALL.min(pages_left(at).unwrap_or(usize::MAX));
        let part = &mut buffer[..len];
        memory.pages(at, part)?;
        for run in part.chunk_by(|a, b| a == b) {
            let to = at.saturating_add(run.len() as u64 * page_bytes);
            if run[0] != Page::Absent {
                each(at, to, run[0]);
            }
            at = to;
        }
    }
    Ok(())
}
