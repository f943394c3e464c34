//! Huge pages that the program asks for on a block of its own, as numpy does for its arrays: the wish ends
//! with the block. The kernel keeps it with the addresses, and would fault whole huge pages in for
//! whatever lies there later, without the heap's knowledge.

use super::Arena;
use super::granule::Granule;
use crate::base::exact::usize_of;
use crate::os::Os;
use crate::size::GRANULE;
use core::sync::atomic::Ordering;

/// A wish for less has no huge page in it (on x86-64, and on aarch64 with pages of 4 KiB).
const HUGE_PAGE: usize = 2 << 20;

impl Arena {
    /// The program has asked for huge pages (MADV_HUGEPAGE) somewhere in this arena. Which block that was is
    /// not kept: from now on every block that could have one pays a call of the kernel when it ends.
    pub fn note_huge_pages(&self) {
        // Relaxed: the thread that frees such a block got it from the thread that asked, by whatever way that orders.
        self.huge_pages.store(true, Ordering::Relaxed);
    }

    /// A large block returns what lies after its first `kept` granules: huge pages are settled there as
    /// everywhere else. Called without the lock, which no system call that changes mappings is made under.
    ///
    /// # Safety
    /// `head` is a valid descriptor. If it is no live block's, a contract was broken that is found out later;
    /// the advice does no harm.
    pub(super) unsafe fn end_huge_pages<O: Os>(&self, os: &O, head: *mut Granule, kept: usize) {
        if !self.huge_pages.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the descriptor is valid (fn contract); of a live block only its owner changes these fields.
        let (base, len, bytes) = unsafe { ((*head).base, (*head).len as usize, (*head).bits) };
        if usize_of(bytes) >= HUGE_PAGE && kept < len {
            os.settle_huge_pages(base + kept * GRANULE, (len - kept) * GRANULE);
        }
    }
}
