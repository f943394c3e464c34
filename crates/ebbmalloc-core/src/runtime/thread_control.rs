//! What a thread can ask of itself and change: its counters, its cache. From the first question on it is
//! observed (`super::observer`).

use super::access::with_access;
use super::instance::HEAP;
pub use super::observer::Counters;
use super::observer::{Interest, Observer, everyone_has_cache};
use super::state::any_observer;
use super::thread::observe;

/// The calling thread's live counters, which are valid until its end; from the first call on the thread
/// is observed. `None` without memory, in a thread that is ending, and in a signal handler that
/// interrupted a request.
pub fn thread_counters() -> Option<&'static Counters> {
    observed_now().map(|observer| &observer.counters)
}

/// The most that the calling thread had allocated and not freed, above what it had when that was last
/// reset. `None` as for [`thread_counters`].
pub fn thread_peak() -> Option<u64> {
    observed_now().map(Observer::peak)
}

/// From now on the peak is counted from what is allocated now. False as for [`thread_counters`].
pub fn reset_thread_peak() -> bool {
    let Some(observer) = observed_now() else {
        return false;
    };
    observer.reset_peak();
    true
}

/// Whether the calling thread keeps free slots in its cache.
pub fn has_thread_cache() -> bool {
    match any_observer() {
        Some(observer) => !observer.goes_around_cache(),
        None => everyone_has_cache(),
    }
}

/// Lets the calling thread keep free slots in its cache, or empties that and keeps the thread from it.
/// False where [`thread_counters`] has nothing.
pub fn set_thread_cache(enabled: bool) -> bool {
    if enabled == has_thread_cache() {
        return true;
    }
    let Some(observer) = observed_now() else {
        return false;
    };
    if !enabled {
        flush_thread_cache();
    }
    observer.set_goes_around_cache(!enabled);
    true
}

/// Puts back what the calling thread's cache holds.
pub fn flush_thread_cache() {
    with_access(|access| HEAP.flush(access));
}

/// The calling thread's observer, to which each of its requests comes from now on.
fn observed_now() -> Option<&'static Observer> {
    // A thread's first request gives it a cache.
    with_access(|_| ());
    observe(Interest::Requests)
}

/// The same, if samples are all that is to be known of the thread.
pub(super) fn sampled_now() -> Option<&'static Observer> {
    with_access(|_| ());
    observe(Interest::Samples)
}
