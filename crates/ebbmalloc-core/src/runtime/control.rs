//! What a face asks and changes while the process runs.

use super::access::{with_access, with_own_cache};
use super::conf::{Id, Source};
use super::hooks::hooks;
use super::instance::HEAP;
use super::purger::purger::PURGER;
use super::{in_force, mechanisms};
use crate::base::exact::usize_of;
pub use crate::heap::utilization::Utilization;
use crate::os::Os;
use crate::size::CLASS;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ebb_stats::mechanism::CPYTHON;

/// Calls of realloc with size 0 and a block. Relaxed: a figure.
static ZERO_REALLOCS: AtomicU64 = AtomicU64::new(0);

/// Counts a realloc of a block to size 0.
pub fn note_zero_realloc() {
    ZERO_REALLOCS.fetch_add(1, Ordering::Relaxed);
}

/// The largest slots that the calling thread's cache keeps, in bytes; 0 for none.
pub fn cache_max() -> usize {
    with_own_cache(|own| {
        let class = own.map_or(0, |own| {
            // SAFETY: `with_own_cache` has entered it.
            unsafe { own.limit_now() }
        });
        CLASS[class].size as usize
    })
}

/// Lets the calling thread's cache keep slots of up to `bytes`, or none for 0. False if it has none.
pub fn set_cache_max(bytes: usize) -> bool {
    with_own_cache(|own| match own {
        // SAFETY: `with_own_cache` has entered it.
        Some(own) => unsafe {
            HEAP.limit_cache(own, bytes);
            true
        },
        None => false,
    })
}

/// How full the slab of the block at `address` is.
pub fn utilization(address: usize) -> Utilization {
    HEAP.utilization(address)
}

/// What a realloc of a block to size 0 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroRealloc {
    /// Frees the block and returns null.
    Free,
    /// Makes the block as small as one can be.
    Alloc,
    /// Ends the process.
    Abort,
}

/// What the settings say of a realloc to size 0.
pub fn zero_realloc() -> ZeroRealloc {
    match in_force::number(Id::ZeroRealloc) {
        0 => ZeroRealloc::Free,
        1 => ZeroRealloc::Alloc,
        _ => ZeroRealloc::Abort,
    }
}

/// How many of those there were.
pub fn zero_reallocs() -> u64 {
    ZERO_REALLOCS.load(Ordering::Relaxed)
}

/// Makes sure that the settings have been read: a program may ask for something before it allocates.
pub fn make_ready() {
    with_access(|_| ());
}

/// Whether the settings let CPython's objects come from here.
pub fn serves_cpython() -> bool {
    make_ready();
    in_force::is(Id::Python)
}

/// CPython's objects come from here.
pub fn note_cpython() {
    mechanisms::note(CPYTHON, true);
}

/// Hands a text to the program's `malloc_message`, or writes it to standard error.
pub fn message(text: &CStr) {
    if !(hooks().message)(text) {
        HEAP.os.write_stderr(text.to_bytes());
    }
}

/// Whether the purger has a thread now, and the time between its ticks in milliseconds.
pub fn purger() -> (bool, u64) {
    (PURGER.thread.runs(), PURGER.interval_ms())
}

/// Whether the purger may have a thread.
pub fn may_start_thread() -> bool {
    PURGER.has_thread()
}

/// The bound that was set on such threads since the start; 0 for none. Relaxed: a figure.
static MOST_THREADS: AtomicUsize = AtomicUsize::new(0);

/// How many threads there may be. There is never more than one.
pub fn most_threads() -> usize {
    match MOST_THREADS.load(Ordering::Relaxed) {
        0 => usize_of(in_force::number(Id::MaxBackgroundThreads)),
        most => most,
    }
}

/// Bounds them, to no more than the settings do. False for a bound that is none.
pub fn let_have_threads(most: usize) -> bool {
    let allowed = (1..=usize_of(in_force::number(Id::MaxBackgroundThreads))).contains(&most);
    if allowed {
        MOST_THREADS.store(most, Ordering::Relaxed);
    }
    allowed
}

/// Lets the purger have a thread, or ends the one that it has and lets slow paths do its work.
pub fn let_start_thread(on: bool) {
    PURGER.set_thread(on);
}

/// Indices of arenas, explicit ones included; see `super::arenas`.
pub fn arenas() -> usize {
    HEAP.arena_indices()
}

/// Size of a page.
pub fn page_bytes() -> usize {
    HEAP.os.page_bytes()
}

/// Arenas that the process has without having asked for them.
pub fn automatic_arenas() -> usize {
    HEAP.shards()
}

/// The longest that memory stays idle where no setting bounds it, in milliseconds; -1 for ever.
pub fn own_decay_ms() -> isize {
    PURGER
        .idle_time_ms()
        .map_or(-1, |ms| usize_of(ms).cast_signed())
}

/// The text that settings were read from, if there was one.
pub fn settings_text(source: Source) -> Option<&'static CStr> {
    in_force::source(source)
}
