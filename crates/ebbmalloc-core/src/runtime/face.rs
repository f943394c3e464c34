//! The public hooks of the runtime, for a face that offers more than malloc and free: the heap, the slow way into it,
//! and what an observed thread is owed by a request that does not pass through `super::entry`.
//!
//! `ebbmalloc-jemalloc` is made of these. Nothing in the core uses them.

pub use super::access::{observer, with_access, with_own_cache};
pub use super::attach::boot_ms;
pub use super::instance::HEAP;
pub use super::lookup::quick_class;
pub use super::observed::{count_new, fill_new_by_settings, note_new, take_sampled_in};
pub use super::observer::Observer;
use super::purger::purger::PURGER;
pub use super::thread::visit_cache;
use crate::base::exact::usize_of;

/// Returns the free extents that all automatic arenas share, unless nothing is to be returned by itself.
pub fn return_extents() {
    if PURGER.schedule.is_on() {
        PURGER.purge_extents();
    }
}

/// Where no thread of the purger's does it, does what is due.
pub fn tick_if_due() {
    PURGER.tick_if_threadless();
}

/// Whether the purger has a thread now, and the time between its ticks in milliseconds.
pub fn purger() -> (bool, u64) {
    (PURGER.thread.runs(), PURGER.interval_ms())
}

/// Whether the purger may have a thread.
pub fn may_start_thread() -> bool {
    PURGER.has_thread()
}

/// Lets the purger have a thread, or ends the one that it has and lets slow paths do its work.
pub fn let_start_thread(on: bool) {
    PURGER.set_thread(on);
}

/// The longest that memory stays idle where no setting bounds it, in milliseconds; -1 for ever.
pub fn own_decay_ms() -> isize {
    PURGER.idle_time_ms().map_or(-1, |ms| usize_of(ms).cast_signed())
}
