//! Counters and cache of the calling thread: read, reset, switched on and off. The first such call makes the thread an
//! observed one (`super::observer`).

use super::access::with_access;
use super::instance::HEAP;
pub use super::observer::Counters;
use super::observer::{Interest, Observer, everyone_has_cache};
use super::state::any_observer;
use super::thread::observe;

/// The calling thread's counters, valid until the thread ends. They count from the first call on. `None` if there is no
/// memory, if the thread is ending, and in a signal handler that interrupted a request.
pub fn thread_counters() -> Option<&'static Counters> {
    observed_now().map(|observer| &observer.counters)
}

/// The peak of the calling thread's live bytes (allocated less freed), relative to their number at the last reset.
/// `None` as for [`thread_counters`].
pub fn thread_peak() -> Option<u64> {
    observed_now().map(Observer::peak)
}

/// Resets the peak to the bytes that are live now. False where [`thread_counters`] is `None`.
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

/// Switches the calling thread's cache on, or empties it and switches it off. False where [`thread_counters`] is `None`.
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

/// Moves all slots of the calling thread's cache to their bins.
pub fn flush_thread_cache() {
    with_access(|access| HEAP.flush(access));
}

/// The calling thread's observer. From now on it sees each of the thread's requests.
fn observed_now() -> Option<&'static Observer> {
    // A thread's first request gives it a cache.
    with_access(|_| ());
    observe(Interest::Requests)
}

/// The same for the heap profile, which needs samples only, not each request.
pub(super) fn sampled_now() -> Option<&'static Observer> {
    with_access(|_| ());
    observe(Interest::Samples)
}
