//! membarrier: every thread of the process passes a full barrier, without their help.

use core::sync::atomic::{AtomicU8, Ordering};

use super::arch::nr;
use super::call::{Errno, call};
use super::{Linux, UNKNOWN};

const REGISTERED: u8 = 1;
/// Not to be asked for any more.
pub const REFUSED: u8 = 2;

const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

impl Linux {
    /// Whether membarrier works here: None until it has been tried.
    pub fn membarrier_works(&self) -> Option<bool> {
        match self.barrier.load(Ordering::Relaxed) {
            UNKNOWN => None,
            state => Some(state == REGISTERED),
        }
    }

    /// Tries membarrier, if no thread has yet: the first call of a process of several threads sleeps for
    /// milliseconds, which it had better do while no lock is held.
    pub fn prepare_membarrier(&self) {
        if self.membarrier_works().is_none() {
            membarrier(&self.barrier);
        }
    }
}

/// [`super::Os::membarrier`].
pub fn membarrier(state: &AtomicU8) -> bool {
    if state.load(Ordering::Relaxed) == REFUSED {
        return false;
    }
    // EPERM means "not registered": at the first call, and should a fork not inherit it.
    let done = match issue(PRIVATE_EXPEDITED) {
        Err(Errno::PERM) => issue(REGISTER_PRIVATE_EXPEDITED).and_then(|()| issue(PRIVATE_EXPEDITED)),
        other => other,
    };
    state.store(if done.is_ok() { REGISTERED } else { REFUSED }, Ordering::Relaxed);
    done.is_ok()
}

fn issue(command: usize) -> Result<(), Errno> {
    if cfg!(ebb_mutation = "membarrier") {
        return Ok(());
    }
    // SAFETY: membarrier changes no memory.
    unsafe { call(nr::MEMBARRIER, [command, 0, 0]) }.map(|_| ())
}
