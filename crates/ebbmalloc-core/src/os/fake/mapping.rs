//! A reservation of the fake kernel: a real mapping, and the state of each of its pages.

use core::ffi::{c_int, c_void};
use core::ops::Range;
use std::collections::BTreeMap;
use std::vec::Vec;

use super::std;

/// The smallest page that a fake kernel can have: the unit of its records.
pub const MIN_PAGE_BYTES: usize = 4096;

/// The state of a page that is committed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Readable and writable.
    Committed,
    /// The same, and locked in memory: cannot be discarded.
    Locked,
}

// The C library that std links; a loom build has no other way to the kernel.
unsafe extern "C" {
    fn mmap(at: *mut c_void, bytes: usize, rights: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
    fn mprotect(at: *mut c_void, bytes: usize, rights: c_int) -> c_int;
}

const PROT_NONE: c_int = 0;
const PROT_READ_WRITE: c_int = 3;
/// MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE.
const MAP_FLAGS: c_int = 0x02 | 0x20 | 0x4000;

/// A range of addresses, unmapped with the fake kernel.
pub struct Reservation {
    start: usize,
    bytes: usize,
    /// The mapping, larger than the reservation by its alignment.
    mapped: Range<usize>,
    /// By number from the start; what is not here is reserved or released.
    pages: BTreeMap<usize, Page>,
    released: Vec<Range<usize>>,
}

impl Reservation {
    pub fn new(bytes: usize, align: usize) -> Option<Self> {
        assert!(bytes > 0 && align.is_power_of_two());
        let mapped_bytes = bytes.checked_add(align)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { mmap(core::ptr::null_mut(), mapped_bytes, PROT_NONE, MAP_FLAGS, -1, 0) };
        let mapped = mapped as usize;
        (mapped != usize::MAX).then(|| Self {
            start: mapped.next_multiple_of(align),
            bytes,
            mapped: mapped..mapped + mapped_bytes,
            pages: BTreeMap::new(),
            released: Vec::new(),
        })
    }

    pub fn start(&self) -> usize {
        self.start
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Commits a range; how many pages were not committed before.
    pub fn commit(&mut self, start: usize, bytes: usize) -> usize {
        let range = self.unreleased(start, bytes, "commit");
        protect(start, bytes, PROT_READ_WRITE);
        let before = self.pages.len();
        for page in range {
            self.pages.entry(page).or_insert(Page::Committed);
        }
        self.pages.len() - before
    }

    /// Releases a range; how many of its pages were committed.
    pub fn release(&mut self, start: usize, bytes: usize) -> usize {
        let range = self.unreleased(start, bytes, "release");
        protect(start, bytes, PROT_NONE);
        let before = self.pages.len();
        self.pages.retain(|page, _| !range.contains(page));
        self.released.push(range);
        before - self.pages.len()
    }

    /// Makes a committed range reserved again.
    pub fn uncommit(&mut self, start: usize, bytes: usize) {
        let range = self.unreleased(start, bytes, "give up");
        protect(start, bytes, PROT_NONE);
        self.pages.retain(|page, _| !range.contains(page));
    }

    pub fn lock(&mut self, start: usize, bytes: usize) {
        self.expect_committed(start, bytes, "lock");
        for page in self.numbers(start, bytes) {
            self.pages.insert(page, Page::Locked);
        }
    }

    pub fn any_locked(&self, start: usize, bytes: usize) -> bool {
        let mut pages = self.pages.range(self.numbers(start, bytes));
        pages.any(|(_, page)| *page == Page::Locked)
    }

    /// Panics unless all of a range is committed.
    pub fn expect_committed(&self, start: usize, bytes: usize, verb: &str) {
        let range = self.numbers(start, bytes);
        let committed = self.pages.range(range.clone()).count();
        assert!(committed == range.len(), "{verb} of {start:#x} + {bytes:#x}, which is not committed");
    }

    fn unreleased(&self, start: usize, bytes: usize, verb: &str) -> Range<usize> {
        let range = self.numbers(start, bytes);
        let overlaps = |gone: &Range<usize>| gone.start < range.end && range.start < gone.end;
        let released = self.released.iter().any(overlaps);
        assert!(!released, "{verb} of {start:#x} + {bytes:#x}, which was released");
        range
    }

    fn numbers(&self, start: usize, bytes: usize) -> Range<usize> {
        let first = (start - self.start) / MIN_PAGE_BYTES;
        first..first + bytes / MIN_PAGE_BYTES
    }
}

fn protect(start: usize, bytes: usize, rights: c_int) {
    // SAFETY: the range lies in a reservation, whose users vouch for what they do with it.
    let status = unsafe { mprotect(start as *mut c_void, bytes, rights) };
    assert_eq!(status, 0, "mprotect of {start:#x} + {bytes:#x}");
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and unmapped here only.
        unsafe { munmap(self.mapped.start as *mut c_void, self.mapped.len()) };
    }
}
