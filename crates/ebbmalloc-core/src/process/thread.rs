//! A thread's relation to the heap: its cache, found through its one word, and the states in which
//! it has none.
//!
//! The word holds the distance from [`NEW`] to the thread's cache, so that a thread whose word is
//! still zero finds a cache that is always empty, and the fast path needs no branch for it. The three
//! static caches are shared by all threads, never hold anything, and are told apart by address.

use super::instance::{HEAP, boot, hooks, notice_fork, nudge};
use super::tls::{is_relocated, thread_word_added_to, thread_word_store};
use super::{early, fork, settings};
use crate::cache::cache::{Cache, Entered};
use crate::heap::Access;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

/// A thread that has not asked for anything yet.
static NEW: Cache = Cache::none();
/// A thread in the middle of an operation without its cache: what interrupts it must not wait.
static BUSY: Cache = Cache::none();
/// A thread that is ending and whose cache is gone.
static ENDED: Cache = Cache::none();

/// The calling thread's cache, or one of the three above.
#[inline(always)]
pub(super) fn current() -> &'static Cache {
    // SAFETY: called only from threads that libc made: the purger's never comes here.
    let address = unsafe { thread_word_added_to((&raw const NEW).cast()) };
    // SAFETY: the word is the distance from NEW to a static cache or to this thread's own, which
    // lives until the thread's end, where the word is set to ENDED first.
    unsafe { &*address.cast::<Cache>() }
}

fn set_current(cache: &Cache) {
    let distance = (cache as *const Cache as usize).wrapping_sub(&raw const NEW as usize);
    // SAFETY: as in `current`.
    unsafe { thread_word_store(distance as *mut u8) };
}

/// Calls `work` with the access that the calling thread has: the slow way into the heap.
#[inline]
pub(super) fn with_access<R>(work: impl FnOnce(Access) -> R) -> R {
    notice_fork();
    let mut cache = current();
    if core::ptr::eq(cache, &NEW) {
        if !is_relocated() {
            early::relocate_self();
            return work(Access::Direct);
        }
        attach();
        cache = current();
    }
    if core::ptr::eq(cache, &BUSY) {
        return work(Access::Nested);
    }
    let own = !core::ptr::eq(cache, &ENDED) && !core::ptr::eq(cache, &NEW);
    if own {
        match cache.enter() {
            Entered::Mine => {
                let result = work(Access::Cached(cache));
                cache.leave();
                nudge();
                return result;
            }
            Entered::Nested => return work(Access::Nested),
            Entered::Claimed => {}
        }
    }
    set_current(&BUSY);
    let result = work(Access::Direct);
    set_current(cache);
    nudge();
    result
}

/// The calling thread's cache, entered, for `work`; `None` if it has none or cannot enter it.
pub(super) fn with_own_cache<R>(work: impl FnOnce(Option<&Cache>) -> R) -> R {
    with_access(|access| match access {
        Access::Cached(cache) => work(Some(cache)),
        Access::Direct | Access::Nested => work(None),
    })
}

/// Gives the calling thread a cache. Without memory for one it goes on without.
#[cold]
fn attach() {
    set_current(&BUSY);
    boot();
    let Some(cache) = HEAP.attach() else {
        set_current(&NEW);
        return;
    };
    // SAFETY: made just now, and it lives until this thread's end.
    set_current(unsafe { cache.as_ref() });
    fork::register();
    // The main thread's end is the end of the process.
    if HEAP.os.gettid() != HEAP.os.process_id() {
        // SAFETY: the destructor takes what is passed here. It may allocate: the cache is in place.
        let heard = unsafe { (hooks().on_thread_exit)(thread_ends, cache.as_ptr().cast()) };
        HEARS_OF_EXITS.store(heard, Ordering::Relaxed);
    }
    settings::confirm();
}

/// Whether libc told us that it will tell of the last thread's end. True before there was one.
pub(super) fn hears_of_exits() -> bool {
    HEARS_OF_EXITS.load(Ordering::Relaxed)
}

static HEARS_OF_EXITS: AtomicBool = AtomicBool::new(true);

/// libc calls this when a thread that has a cache ends.
unsafe extern "C" fn thread_ends(value: *mut u8) {
    let Some(cache) = NonNull::new(value.cast::<Cache>()) else {
        return;
    };
    set_current(&BUSY);
    // SAFETY: `value` is what `attach` passed, on this thread, which uses it no more: its word says
    // so since the line above.
    unsafe { HEAP.detach(cache) };
    set_current(&ENDED);
    nudge();
}

/// Fork: marks the thread as busy and returns the cache that it had.
pub(super) fn begin_fork() -> &'static Cache {
    let cache = current();
    set_current(&BUSY);
    cache
}

/// Whether the calling thread is inside an operation already (a signal handler asks).
pub(super) fn is_inside() -> bool {
    let cache = current();
    if core::ptr::eq(cache, &BUSY) {
        return true;
    }
    if is_own(cache) {
        return match cache.enter() {
            Entered::Mine => {
                cache.leave();
                false
            }
            Entered::Nested => true,
            Entered::Claimed => false,
        };
    }
    false
}

/// Whether `cache` is a thread's own, not one of the three states.
pub(super) fn is_own(cache: &Cache) -> bool {
    ![&raw const NEW, &raw const BUSY, &raw const ENDED].contains(&(cache as *const Cache))
}

/// Fork, after: the thread is as it was before [`begin_fork`].
pub(super) fn end_fork(cache: &'static Cache) {
    set_current(cache);
}
