//! Pages that fault when they are touched, inside memory of the heap's. MADV_GUARD_INSTALL (Linux 6.13) leaves the mapping
//! whole; before it mprotect splits mappings, of which a process may have some 65,000.

use super::arch::nr;
use super::call::call;
use super::memory::{PROT_READ_WRITE, map_anew, protect};
use super::{Linux, UNKNOWN};
use core::sync::atomic::Ordering;

const BY_ADVICE: u8 = 1;
const BY_RIGHTS: u8 = 2;

const MADV_DONTNEED: usize = 4;
const MADV_GUARD_INSTALL: usize = 102;
const MADV_GUARD_REMOVE: usize = 103;

impl Linux {
    /// Makes whole pages fault, and returns what they held. False, and nothing has happened, where the kernel refuses.
    ///
    /// # Safety
    /// The pages are committed memory of the heap's, and no thread that keeps malloc's contract touches them.
    pub unsafe fn bar(&self, start: usize, bytes: usize) -> bool {
        if self.guards.load(Ordering::Relaxed) != BY_RIGHTS {
            // SAFETY: no thread reads the pages again (fn contract).
            let installed = unsafe { call(nr::MADVISE, [start, bytes, MADV_GUARD_INSTALL]) };
            if installed.is_ok() {
                self.guards.store(BY_ADVICE, Ordering::Relaxed);
                return true;
            }
            if self.guards.load(Ordering::Relaxed) != UNKNOWN {
                return false;
            }
        }
        if self.is_confined() {
            return false;
        }
        self.guards.store(BY_RIGHTS, Ordering::Relaxed);
        // SAFETY: no thread touches the pages (fn contract).
        unsafe {
            let _ = call(nr::MADVISE, [start, bytes, MADV_DONTNEED]);
            protect(start, bytes).is_ok()
        }
    }

    /// Whether blocks may get guards without strict mode: not if each would split the mapping.
    pub(super) fn may_guard_ends(&self) -> bool {
        !self.no_ends.load(Ordering::Relaxed) && self.guards.load(Ordering::Relaxed) != BY_RIGHTS && !self.is_confined()
    }

    /// Whether single blocks may get guards in a mapping of their own.
    pub fn samples_guards(&self) -> bool {
        !self.no_ends.load(Ordering::Relaxed) && !self.is_confined()
    }

    /// Settings: no guards without strict mode. At boot.
    pub fn guard_no_ends(&self) {
        self.no_ends.store(true, Ordering::Relaxed);
    }

    /// Makes whole pages fault. False, and nothing has happened, where the kernel has no advice for it.
    ///
    /// # Safety
    /// As for [`Linux::bar`].
    pub(super) unsafe fn guard_by_advice(&self, start: usize, bytes: usize) -> bool {
        // SAFETY: no thread reads the pages again (fn contract).
        let installed = unsafe { call(nr::MADVISE, [start, bytes, MADV_GUARD_INSTALL]) }.is_ok();
        if self.guards.load(Ordering::Relaxed) == UNKNOWN {
            let way = if installed { BY_ADVICE } else { BY_RIGHTS };
            self.guards.store(way, Ordering::Relaxed);
        }
        installed
    }

    /// Undoes [`Linux::guard_by_advice`]; the pages read as zero. In a sandbox, where the advice may kill, they are mapped
    /// anew. False if the kernel refuses.
    ///
    /// # Safety
    /// As for [`Linux::bar`].
    pub(super) unsafe fn unguard_by_advice(&self, start: usize, bytes: usize) -> bool {
        // SAFETY: the heap's own committed memory, which no thread uses, is usable again.
        unsafe {
            if !self.is_confined() && call(nr::MADVISE, [start, bytes, MADV_GUARD_REMOVE]).is_ok() {
                return true;
            }
            map_anew(start, bytes).is_ok()
        }
    }

    /// Undoes [`Linux::bar`] for some of the pages. False if the kernel refuses; the pages are lost then.
    ///
    /// # Safety
    /// The pages are committed memory of the heap's, and the others' contents may stay.
    pub unsafe fn unbar(&self, start: usize, bytes: usize) -> bool {
        // SAFETY: the heap's own committed memory gets back the rights that it had.
        unsafe {
            match self.guards.load(Ordering::Relaxed) {
                BY_RIGHTS => call(nr::MPROTECT, [start, bytes, PROT_READ_WRITE]).is_ok(),
                _ => call(nr::MADVISE, [start, bytes, MADV_GUARD_REMOVE]).is_ok(),
            }
        }
    }
}
