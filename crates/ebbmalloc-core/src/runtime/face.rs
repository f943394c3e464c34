//! The public hooks of the runtime, for a face that offers more than malloc and free: the heap, the slow way into it,
//! and what an observed thread is owed by a request that does not pass through `super::entry`.
//!
//! `ebbmalloc-jemalloc` is made of these. Nothing in the core uses them.

pub use super::access::{observer, with_access};
pub use super::instance::HEAP;
pub use super::lookup::quick_class;
pub use super::observed::{count_new, fill_new_by_settings, note_new, take_sampled_in};
pub use super::observer::Observer;
use super::purger::purger::PURGER;

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
