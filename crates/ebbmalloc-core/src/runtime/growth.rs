//! What a step of growth is followed by: the counters are published, and near the limit of the
//! cgroup everything idle goes back, by the thread that grows.

use super::instance::HEAP;
use super::profile::dumps;
use super::thread::with_own_cache;
use super::{publish, purger};

/// After a slow operation that saw [`crate::heap::Heap::attention`]; whether there was a step of growth.
pub(super) fn look() -> bool {
    if !HEAP.has_grown() {
        return false;
    }
    // Within the cache, so that a signal handler in the middle of this waits for no lock.
    with_own_cache(|own| {
        publish::after_growth();
        // A child of vfork may end in the middle of what it does to its owner's heap.
        let may_look = purger::is_on() && !HEAP.os.is_confined() && !HEAP.os.is_borrower();
        if may_look && HEAP.is_short_of_memory() {
            HEAP.trim(own);
            HEAP.is_still_near_limit();
        }
    });
    dumps::after_growth();
    // Another thread looks, or returns what is idle: growing on meanwhile could be what is one page
    // too much. Outside the cache, which a fork may be waiting for.
    HEAP.wait_for_relief();
    true
}
