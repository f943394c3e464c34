//! What a thread is to the heap. Its word says so (`super::tls`).
//!
//! The word holds the distance from [`NEW`] to the thread's cache. So the zero of a new thread leads to a cache that is
//! always empty, and the fast path needs no branch for it. Four static caches stand for states; all threads share
//! them, they never hold anything, and their addresses tell them apart.
//!
//! | state | the word leads to | a request is served | a free goes |
//! |---|---|---|---|
//! | `New` | `NEW` | by the slow path, which attaches the thread | to the bins |
//! | `Busy` | `BUSY` | as in a signal handler: without waiting for a lock | to the bins, or is postponed |
//! | `Owner` | the thread's cache | from the cache | to the cache |
//! | `Sampled` | the thread's cache, which is rationed | from a ration; the slow path looks at the last of each | to the cache |
//! | `Observed` | `OBSERVED` | by the slow path, from the thread's cache | by the slow path, to the cache |
//! | `Ended` | `ENDED` | by the slow path, from the bins | to the bins |
//!
//! Transitions. Each passes through `Busy` but where rations begin again or end, so that a signal handler finds the state before, `Busy`, or the
//! state after; [`State::set`] checks them in debug builds.
//!
//! | from | to | when |
//! |---|---|---|
//! | `New` | `Busy` | the first request attaches the thread (`super::attach`) |
//! | `Busy` | `New` | there is no memory for a cache, or a fork keeps the heap closed |
//! | `Busy` | `Owner`, `Sampled`, `Observed` | the thread has a cache; everyone may be sampled or observed |
//! | `Owner`, `Sampled`, `Observed` | `Busy` | an operation goes around the cache, or takes locks; fork; the end of the thread |
//! | `Busy` | the state before | the operation is done |
//! | `Owner` | `Busy`, then `Sampled` or `Observed` | a setting or the thread itself asks for it (`super::thread::observe`) |
//! | `Sampled` | `Owner`, then `Observed` | the thread asks for its counters, which ends its rations |
//! | `Sampled` | `Owner` | the profile that a tool asked for is over, which ends its rations; the next begins new ones |
//! | `Busy` | `Ended` | the cache is gone (`super::attach`) |
//! | `Ended` | `Busy` | destructors of libc's that run later allocate or free |
//!
//! An observer stays until the thread ends, also where the thread is an `Owner` again. Which arena refills a cache
//! ([`Cache::home`]) is a property of the cache: a thread on an explicit arena is an `Owner` like any other.

use super::observer::Observer;
use super::tls::{observer_slot, set_observer_slot, set_thread_word, thread_word_added_to};
use crate::cache::cache::Cache;
use core::ptr::{eq, from_ref, null_mut};

static NEW: Cache = Cache::none();
static BUSY: Cache = Cache::none();
static ENDED: Cache = Cache::none();
/// Always empty and never entered: the observer knows the thread's cache.
static OBSERVED: Cache = Cache::closed();

/// A thread's state, as the module says.
#[derive(Clone, Copy)]
pub(super) enum State {
    /// No request yet.
    New,
    /// In the middle of an operation without its cache: what interrupts it must not wait.
    Busy,
    /// Its cache is gone.
    Ended,
    /// Has a cache.
    Owner(&'static Cache),
    /// Has a cache, which is rationed: the heap profile alone wants to know of it.
    Sampled(&'static Observer),
    /// Has a cache, and each of its requests is looked at.
    Observed(&'static Observer),
}

/// The cache that the calling thread's word leads to.
#[inline(always)]
pub(super) fn current() -> &'static Cache {
    // SAFETY: called only from threads that libc made: the purger's never comes here.
    let address = unsafe { thread_word_added_to((&raw const NEW).cast()) };
    // SAFETY: the word is the distance from NEW to a static cache or to this thread's own, which
    // lives until the thread's end, where the word is set to ENDED first.
    unsafe { &*address.cast::<Cache>() }
}

/// Whether the calling thread is [`State::New`].
#[inline(always)]
pub(super) fn is_new() -> bool {
    eq(current(), &NEW)
}

/// The calling thread's observer, if its word says that it is sampled or observed.
#[inline(always)]
pub(super) fn observer() -> Option<&'static Observer> {
    let word = current();
    if eq(word, &OBSERVED) || word.is_rationed() {
        // SAFETY: with OBSERVED or a rationed cache in the first word the second leads to a record that lives until
        // the thread's end.
        unsafe { Some(&*observer_slot().cast::<Observer>()) }
    } else {
        None
    }
}

/// The calling thread's observer, whatever the thread is doing.
pub(super) fn any_observer() -> Option<&'static Observer> {
    // SAFETY: null, or a record that lives until the thread's end.
    unsafe { observer_slot().cast::<Observer>().as_ref() }
}

/// Keeps the observer of the calling thread, which is `Busy`; `None` takes it away.
pub(super) fn keep_observer(observer: Option<&'static Observer>) {
    let record = observer.map_or(null_mut(), |observer| from_ref(observer).cast_mut());
    // SAFETY: called only from threads that libc made.
    unsafe { set_observer_slot(record.cast()) };
}

impl State {
    /// The calling thread's.
    #[inline]
    pub(super) fn now() -> Self {
        let word = current();
        if eq(word, &NEW) {
            return Self::New;
        }
        if eq(word, &BUSY) {
            return Self::Busy;
        }
        match observer() {
            Some(observer) if eq(word, &OBSERVED) => Self::Observed(observer),
            Some(observer) => Self::Sampled(observer),
            None if eq(word, &ENDED) => Self::Ended,
            None => Self::Owner(word),
        }
    }

    /// What a thread with this cache and maybe an observer is.
    pub(super) fn of(cache: &'static Cache, observer: Option<&'static Observer>) -> Self {
        match observer {
            None => Self::Owner(cache),
            Some(observer) if observer.is_sampled_alone() => Self::Sampled(observer),
            Some(observer) => Self::Observed(observer),
        }
    }

    /// Makes it the calling thread's.
    #[inline]
    pub(super) fn set(self) {
        debug_assert!(Self::now().may_become(self));
        let cache = match self {
            Self::New => &NEW,
            Self::Busy => &BUSY,
            Self::Ended => &ENDED,
            Self::Owner(cache) => cache,
            Self::Sampled(observer) => observer.cache(),
            Self::Observed(_) => &OBSERVED,
        };
        let distance = (from_ref(cache) as usize).wrapping_sub(&raw const NEW as usize);
        // SAFETY: called only from threads that libc made; the distance is to a static cache or to the thread's own.
        unsafe { set_thread_word(distance as *mut u8) };
    }

    /// Makes the calling thread `Busy`; the state that it was in.
    #[inline]
    pub(super) fn begin_busy() -> Self {
        let state = Self::now();
        Self::Busy.set();
        state
    }

    /// The thread's cache, if it has one that can be named.
    #[inline]
    pub(super) fn cache(self) -> Option<&'static Cache> {
        match self {
            Self::New | Self::Busy | Self::Ended => None,
            Self::Owner(cache) => Some(cache),
            Self::Sampled(observer) | Self::Observed(observer) => Some(observer.cache()),
        }
    }

    /// The thread's observer, if the state leads to it.
    #[inline]
    pub(super) fn observer(self) -> Option<&'static Observer> {
        match self {
            Self::Sampled(observer) | Self::Observed(observer) => Some(observer),
            _ => None,
        }
    }

    /// Whether the table of transitions has this one.
    fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Busy, _) | (_, Self::Busy) | (Self::Sampled(_) | Self::Owner(_), Self::Observed(_))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_cache(work: impl FnOnce(&'static Cache)) {
        // Kept until the end of the tests, as a thread's cache is until the end of the thread.
        work(Box::leak(Box::new(Cache::none())));
    }

    #[test]
    fn a_word_says_each_state() {
        std::thread::spawn(|| {
            assert!(matches!(State::now(), State::New));
            assert!(is_new());
            assert!(matches!(State::begin_busy(), State::New));
            assert!(matches!(State::now(), State::Busy));
            with_cache(|cache| {
                State::of(cache, None).set();
                assert!(State::now().cache().is_some_and(|now| eq(now, cache)));
                assert!(observer().is_none());
                State::begin_busy();
            });
            State::Ended.set();
            assert!(matches!(State::now(), State::Ended));
            assert!(State::now().cache().is_none());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_state_is_left_through_busy() {
        with_cache(|cache| {
            let owner = State::of(cache, None);
            for state in [State::New, State::Ended, owner] {
                assert!(state.may_become(State::Busy));
                assert!(State::Busy.may_become(state));
                for next in [State::New, State::Ended, owner] {
                    assert!(!state.may_become(next));
                }
            }
        });
    }
}
