//! Limits that count more than resident pages, and how memory is given up so that they do not count it.
//!
//! RLIMIT_DATA and strict overcommit count what may be written: a fresh inaccessible mapping in its
//! place is not counted, and the addresses stay ours. RLIMIT_AS counts every mapping: the range is
//! unmapped, and may be somebody else's when we want it again.

use core::sync::atomic::Ordering;

use super::arch::nr;
use super::call::{Errno, call};
use super::memory::{self, MAP_FIXED, PROT_NONE, PROT_READ_WRITE};
use super::{Linux, Os, OsError, Scarce, UNKNOWN};

pub const RLIMIT_AS: usize = 9;
const RLIMIT_DATA: usize = 2;
/// RLIM_INFINITY.
pub const NO_LIMIT: usize = usize::MAX;

const LENIENT: u8 = 1;
const STRICT: u8 = 2;

/// The soft limit on `resource`.
pub fn limit(resource: usize) -> usize {
    let mut limits = [NO_LIMIT; 2];
    let at = limits.as_mut_ptr() as usize;
    // SAFETY: no new limit is set, and `limits` is a valid rlimit64 to write to.
    let _ = unsafe { call(nr::PRLIMIT64, [0, resource, 0, at]) };
    limits[0]
}

impl Linux {
    /// [`Os::scarce`].
    pub(super) fn find_scarce(&self) -> Scarce {
        if self.address_space_limit().is_some() || self.unmaps.load(Ordering::Relaxed) {
            return Scarce::Addresses;
        }
        if !self.is_confined() {
            let charged = limit(RLIMIT_DATA) != NO_LIMIT || self.counts_strictly();
            self.charged.store(charged, Ordering::Relaxed);
        }
        if self.charged.load(Ordering::Relaxed) { Scarce::Charge } else { Scarce::Nothing }
    }

    /// Reads what [`Os::scarce`] needs, while files can be read and a descriptor does no harm.
    pub fn prepare_scarce(&self) {
        self.find_scarce();
    }

    /// Whether vm.overcommit_memory is 2; read once.
    fn counts_strictly(&self) -> bool {
        if self.overcommit.load(Ordering::Relaxed) == UNKNOWN {
            let mut text = [0];
            let read = self.read_file(c"/proc/sys/vm/overcommit_memory", &mut text);
            let strict = read.is_some_and(|_| text == *b"2");
            let state = if strict { STRICT } else { LENIENT };
            self.overcommit.store(state, Ordering::Relaxed);
        }
        self.overcommit.load(Ordering::Relaxed) == STRICT
    }
}

/// [`Os::give_up`].
///
/// # Safety
/// The range is the allocator's own and no thread uses it.
pub unsafe fn give_up(start: usize, bytes: usize, scarce: Scarce) -> Result<(), OsError> {
    // SAFETY: the range is the allocator's own and no thread uses it (fn contract), so it may be unmapped or lose its
    // rights.
    unsafe {
        match scarce {
            Scarce::Addresses => call(nr::MUNMAP, [start, bytes])?,
            _ => memory::map_at(start, bytes, PROT_NONE, MAP_FIXED)?,
        };
    }
    Ok(())
}

/// [`Os::take_back`].
///
/// # Safety
/// The range was given up in the same way.
pub unsafe fn take_back(start: usize, bytes: usize, scarce: Scarce) -> Result<(), OsError> {
    /// Since Linux 4.17; before it is a wish, and the answer may be elsewhere.
    const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
    const EXIST: Errno = Errno(17);
    if scarce != Scarce::Addresses {
        // SAFETY: the range was given up with its addresses kept (fn contract), so it is still a mapping of ours.
        return unsafe { memory::commit(start, bytes) };
    }
    // SAFETY: replaces nothing.
    match unsafe { memory::map_at(start, bytes, PROT_READ_WRITE, MAP_FIXED_NOREPLACE) } {
        Ok(at) if at == start => Ok(()),
        Ok(at) => {
            // SAFETY: mapped just now, elsewhere.
            unsafe { memory::release(at, bytes) };
            Err(OsError::Invalid)
        }
        Err(EXIST) => Err(OsError::Invalid),
        Err(errno) => Err(errno.into()),
    }
}
