//! What a step of growth is followed by: the counters are published, and near the limit of the
//! cgroup the thread that grows returns everything idle.

use super::instance::HEAP;
use super::profile::dumps;
use super::publish::{self, Purging};
use super::thread::visit_cache;

/// After a step of growth, in the slow operation that saw it.
pub(super) fn follow(purging: Purging) {
    // Within the cache, so that a signal handler in the middle of this waits for no lock.
    visit_cache(|own| {
        publish::after_growth(purging);
        // A child of vfork may end in the middle of what it does to its owner's heap.
        let may_look = purging.idle_time_ms.is_some() && !HEAP.os.is_confined() && !HEAP.os.is_borrower();
        if may_look && HEAP.look_at_limit() {
            HEAP.trim(own);
            HEAP.refresh_pressure();
        }
    });
    dumps::after_growth();
    // Another thread looks, or returns what is idle: growing on meanwhile could be what is one page
    // too much. Outside the cache, which a fork may be waiting for.
    HEAP.wait_for_relief();
}
