//! Which mechanisms work in this process, as far as they have been tried. The code that tries one notes the result here; the published
//! counters contain it.

use super::instance::HEAP;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_stats::mechanism::{FORK_MARK, MEMBARRIER, PROCESS_MADVISE, PURGER_THREAD, THREAD_EXIT};

/// Bits of [`ebb_stats::mechanism`]. That libc calls at a thread's end is assumed until it refuses. Relaxed: a figure.
static NOTED: AtomicU64 = AtomicU64::new(THREAD_EXIT);

/// A mechanism, a bit of [`ebb_stats::mechanism`], was tried.
pub(super) fn note(mechanism: u64, works: bool) {
    if works {
        NOTED.fetch_or(mechanism, Ordering::Relaxed);
    } else {
        NOTED.fetch_and(!mechanism, Ordering::Relaxed);
    }
}

/// The mechanisms in force; whether the purger may have a thread says its owner.
pub(super) fn in_force(purger_thread: bool) -> u64 {
    let asked = [
        (HEAP.os.membarrier_works() == Some(true), MEMBARRIER),
        (HEAP.os.process_madvise_works() == Some(true), PROCESS_MADVISE),
        (HEAP.os.has_fork_mark(), FORK_MARK),
        (purger_thread, PURGER_THREAD),
    ];
    let works = asked.iter().filter(|(works, _)| *works);
    works.fold(NOTED.load(Ordering::Relaxed), |bits, (_, bit)| bits | bit)
}
