//! A thread's relation to the heap: its cache, found through its one word, and the states in which
//! it has none.
//!
//! The word holds the distance from [`NEW`] to the thread's cache, so that a thread whose word is
//! still zero finds a cache that is always empty, and the fast path needs no branch for it. The four
//! static caches are shared by all threads, never hold anything, and are told apart by address. One of
//! them stands for threads that have a cache and are observed ([`super::observer`]).

use super::boot::boot;
use super::fork::notice as notice_fork;
use super::hooks::hooks;
use super::instance::HEAP;
use super::observer::{self, Interest, Observer};
use super::purger::nudge;
use super::tls::{
    is_relocated, second_word_load, second_word_store, thread_number, thread_word_added_to,
    thread_word_store,
};
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
/// A thread whose every request is looked at: its cache is where its observer says.
static OBSERVED: Cache = Cache::closed();

/// The calling thread's cache, or one of the four above.
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

/// The calling thread's observer, if there is one who is to be told of what the cache in its word did
/// not serve.
#[inline(always)]
pub(super) fn observer() -> Option<&'static Observer> {
    let word = current();
    let told = core::ptr::eq(word, &OBSERVED)
        || word.is_rationed()
        || core::ptr::eq(word, &NEW) && becomes_observed();
    if !told {
        return None;
    }
    // SAFETY: as in `current`; with OBSERVED or a rationed cache in the first word the second leads to a
    // record that lives until the thread's end.
    unsafe { Some(&*second_word_load().cast::<Observer>()) }
}

/// A new thread's first request: gives it a cache, so that this request is looked at as well if all are.
#[cold]
fn becomes_observed() -> bool {
    if !is_relocated() {
        return false;
    }
    notice_fork();
    attach();
    core::ptr::eq(current(), &OBSERVED) || current().is_rationed()
}

/// The calling thread's observer, whatever the thread is doing.
pub(super) fn any_observer() -> Option<&'static Observer> {
    // SAFETY: null, or a record that lives until the thread's end.
    unsafe { second_word_load().cast::<Observer>().as_ref() }
}

/// From now on what is of `interest` is known of the calling thread. It has a cache of its own, and is not
/// inside it. Without memory for a record it goes on as before.
#[cold]
pub(super) fn observe(interest: Interest) -> Option<&'static Observer> {
    if let Some(observer) = any_observer() {
        if interest == Interest::Requests && observer.is_sampled_alone() {
            if !observer.end_rations() {
                return None;
            }
            set_current(&OBSERVED);
        }
        return Some(observer);
    }
    let cache = current();
    if !is_own(cache) {
        return None;
    }
    set_current(&BUSY);
    if !HEAP.gate.come_in(&HEAP.os, thread_number()) {
        set_current(cache);
        return None;
    }
    let made = observer::make(cache, interest);
    HEAP.gate.go_out();
    if let Some(observer) = made {
        // SAFETY: as in `current`.
        unsafe { second_word_store(core::ptr::from_ref(observer).cast_mut().cast()) };
    }
    set_current(word_of(cache, made));
    made
}

/// What a thread's word leads to that has a cache, and maybe an observer.
fn word_of(cache: &'static Cache, observer: Option<&Observer>) -> &'static Cache {
    match observer {
        Some(observer) if !observer.is_sampled_alone() => &OBSERVED,
        _ => cache,
    }
}

/// Calls `work` with the access that the calling thread has: the slow way into the heap.
#[inline]
pub(super) fn with_access<R>(work: impl FnOnce(Access) -> R) -> R {
    notice_fork();
    let mut word = current();
    if core::ptr::eq(word, &NEW) {
        if !is_relocated() {
            early::relocate_self();
            return work(Access::Direct);
        }
        if HEAP.gate.is_closed_to(thread_number()) && !waited_for_thaw() {
            return outside(word, work);
        }
        attach();
        word = current();
    }
    if core::ptr::eq(word, &BUSY) {
        return work(Access::Nested);
    }
    let observer = observer();
    let cache = observer.map_or(word, |observer| observer.cache());
    let own = !core::ptr::eq(word, &ENDED) && !core::ptr::eq(word, &NEW);
    let mut purger_has_it = false;
    while own && !purger_has_it {
        match cache.enter() {
            Entered::Mine if observer.is_some_and(Observer::goes_around_cache) => {
                cache.leave();
                break;
            }
            Entered::Mine => {
                let result = work(Access::Cached(cache));
                cache.leave();
                follow_settings(observer);
                nudge();
                return result;
            }
            Entered::Nested => return work(Access::Nested),
            Entered::Claimed if HEAP.gate.is_closed_to(thread_number()) => {
                if waited_for_thaw() {
                    continue;
                }
                return outside(word, work);
            }
            Entered::Claimed => purger_has_it = true,
        }
    }
    set_current(&BUSY);
    if !HEAP.gate.come_in(&HEAP.os, thread_number()) {
        return outside(word, work);
    }
    let result = work(if own {
        Access::Around(cache)
    } else {
        Access::Direct
    });
    HEAP.gate.go_out();
    set_current(word);
    if own {
        follow_settings(observer);
    }
    nudge();
    result
}

/// Calls `work` for a thread that a fork keeps waiting for long.
#[cold]
fn outside<R>(word: &'static Cache, work: impl FnOnce(Access) -> R) -> R {
    set_current(&BUSY);
    let result = work(Access::Outside);
    set_current(word);
    result
}

/// Whether a fork that keeps the calling thread waiting is over.
#[cold]
fn waited_for_thaw() -> bool {
    HEAP.gate.wait(&HEAP.os, thread_number())
}

/// After a slow operation of a thread that has a cache: whether it is observed may have changed, and
/// for what.
#[inline]
fn follow_settings(observer: Option<&Observer>) {
    match observer {
        Some(observer) => observer.follow_settings(),
        None if observer::is_everyone_observed() => drop(observe(observer::of_everyone())),
        None => {}
    }
}

/// Calls `work` with the thread marked as busy, so that it may take locks: whatever interrupts it waits
/// for nothing. `None` in a signal handler that interrupted a request, and while a fork keeps the heap closed.
pub(super) fn set_apart<R>(work: impl FnOnce() -> R) -> Option<R> {
    let word = current();
    if is_inside() {
        return None;
    }
    set_current(&BUSY);
    let result = HEAP.gate.come_in(&HEAP.os, thread_number()).then(|| {
        let result = work();
        HEAP.gate.go_out();
        result
    });
    set_current(word);
    result
}

/// The calling thread's cache, entered, for `work`; `None` if it has none or cannot enter it.
pub(super) fn with_own_cache<R>(work: impl FnOnce(Option<&Cache>) -> R) -> R {
    with_access(|access| match access {
        Access::Cached(cache) => work(Some(cache)),
        Access::Direct | Access::Around(_) | Access::Nested | Access::Outside => work(None),
    })
}

/// Gives the calling thread a cache. Without memory for one it goes on without.
#[cold]
fn attach() {
    set_current(&BUSY);
    if !HEAP.gate.come_in(&HEAP.os, thread_number()) {
        return set_current(&NEW);
    }
    boot();
    let made = HEAP.attach();
    HEAP.gate.go_out();
    let Some(cache) = made else {
        return set_current(&NEW);
    };
    // SAFETY: made just now, and it lives until this thread's end.
    set_current(unsafe { cache.as_ref() });
    if observer::is_everyone_observed() {
        observe(observer::of_everyone());
    }
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
    // The cache can be drained nowhere else: a fork that keeps the thread waiting for long may be disturbed.
    let guest = HEAP.gate.come_in(&HEAP.os, thread_number());
    // SAFETY: `value` is what `attach` passed, on this thread, which uses it no more: its word says
    // so since the line above.
    unsafe { HEAP.detach(cache) };
    if let Some(observer) = any_observer() {
        // SAFETY: the word says BUSY, so nothing finds the record any more, and it goes once.
        unsafe {
            second_word_store(core::ptr::null_mut());
            observer::unmake(observer);
        }
    }
    if guest {
        HEAP.gate.go_out();
    }
    set_current(&ENDED);
    nudge();
}

/// The calling thread's cache, observed or not, or the state that it is in. Takes no lock.
fn cache_behind_word() -> &'static Cache {
    let word = current();
    let observer = core::ptr::eq(word, &OBSERVED).then(any_observer);
    observer.flatten().map_or(word, Observer::cache)
}

/// The calling thread's cache, if it has one.
pub(super) fn own_cache() -> Option<&'static Cache> {
    let cache = cache_behind_word();
    is_own(cache).then_some(cache)
}

/// Fork: marks the thread as busy and returns the cache that it had.
pub(super) fn begin_fork() -> &'static Cache {
    let cache = cache_behind_word();
    set_current(&BUSY);
    cache
}

/// Whether the calling thread is inside an operation already (a signal handler asks).
pub(super) fn is_inside() -> bool {
    let cache = cache_behind_word();
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

/// Whether `cache` is a thread's own, not one of the states.
pub(super) fn is_own(cache: &Cache) -> bool {
    let states = [
        &raw const NEW,
        &raw const BUSY,
        &raw const ENDED,
        &raw const OBSERVED,
    ];
    !states.contains(&core::ptr::from_ref(cache))
}

/// Fork, after: the thread is as it was before [`begin_fork`].
pub(super) fn end_fork(cache: &'static Cache) {
    set_current(if is_own(cache) {
        word_of(cache, any_observer())
    } else {
        cache
    });
}
