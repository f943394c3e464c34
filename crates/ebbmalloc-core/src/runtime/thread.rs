//! How a thread enters the heap: with its cache, without it, or while a fork keeps it waiting. `super::access` gives a new
//! thread its cache first, and does what follows a slow operation.

use super::instance::HEAP;
use super::observer::{self, Interest, Observer};
use super::state::{State, any_observer, keep_observer};
use super::tls::thread_number;
use crate::cache::cache::{Cache, Entered};
use crate::heap::Access;

/// Calls `work` with the access that the calling thread has; then `after` with the thread's state, unless the thread
/// was nested or outside.
#[inline]
pub(super) fn visit<R>(work: impl FnOnce(Access) -> R, after: impl FnOnce(State)) -> R {
    let state = State::now();
    if let State::Busy = state {
        return work(Access::Nested);
    }
    let mut purger_has_it = false;
    while let Some(cache) = state.cache()
        && !purger_has_it
    {
        match cache.enter() {
            Entered::Mine if state.observer().is_some_and(Observer::goes_around_cache) => {
                cache.leave();
                break;
            }
            Entered::Mine => {
                let result = work(Access::Cached(cache));
                cache.leave();
                after(state);
                return result;
            }
            Entered::Nested => return work(Access::Nested),
            Entered::Claimed if HEAP.parts.gate.is_closed_to(thread_number()) => {
                if !waited_for_thaw() {
                    return outside(state, work);
                }
            }
            Entered::Claimed => purger_has_it = true,
        }
    }
    State::Busy.set();
    if !HEAP.parts.gate.come_in(&HEAP.os, thread_number()) {
        return outside(state, work);
    }
    let result = work(state.cache().map_or(Access::Direct, Access::Around));
    HEAP.parts.gate.go_out();
    state.set();
    after(state);
    result
}

/// Calls `work` with the calling thread's cache, entered, or with `None` if it has none or cannot enter it.
pub fn visit_cache<R>(work: impl FnOnce(Option<&Cache>) -> R) -> R {
    visit(|access| work(entered(access)), |_| ())
}

pub(super) fn entered(access: Access<'_>) -> Option<&Cache> {
    match access {
        Access::Cached(cache) => Some(cache),
        Access::Direct | Access::Around(_) | Access::Nested | Access::Outside => None,
    }
}

/// Calls `work` for a thread that a fork keeps waiting for long.
#[cold]
pub(super) fn outside<R>(state: State, work: impl FnOnce(Access) -> R) -> R {
    State::Busy.set();
    let result = work(Access::Outside);
    state.set();
    result
}

/// Whether a fork that keeps the calling thread waiting is over.
#[cold]
pub(super) fn waited_for_thaw() -> bool {
    HEAP.parts.gate.wait(&HEAP.os, thread_number())
}

/// Calls `work` with the thread marked as busy, so that it may take locks: a signal handler that interrupts it does not
/// wait for them. `None` in a signal handler that interrupted a request, and while a fork keeps the heap closed.
pub(super) fn set_apart<R>(work: impl FnOnce() -> R) -> Option<R> {
    if is_inside() {
        return None;
    }
    let state = State::begin_busy();
    let result = HEAP.parts.gate.come_in(&HEAP.os, thread_number()).then(|| {
        let result = work();
        HEAP.parts.gate.go_out();
        result
    });
    state.set();
    result
}

/// Whether the calling thread is inside an operation already (a signal handler asks).
pub(super) fn is_inside() -> bool {
    let state = State::now();
    match state.cache().map(Cache::enter) {
        Some(Entered::Mine) => {
            state.cache().map(Cache::leave);
            false
        }
        Some(Entered::Nested) => true,
        Some(Entered::Claimed) => false,
        None => matches!(state, State::Busy),
    }
}

/// Observes the calling thread for `interest` from now on. The thread has a cache, and has not entered it. If there is no
/// memory for a record, nothing changes.
#[cold]
pub(super) fn observe(interest: Interest) -> Option<&'static Observer> {
    if let Some(observer) = any_observer() {
        if interest == Interest::Requests && observer.is_sampled_alone() {
            if !observer.end_rations() {
                return None;
            }
            State::Observed(observer).set();
        }
        observer.follow_settings();
        return Some(observer);
    }
    let cache = State::now().cache()?;
    let state = State::begin_busy();
    if !HEAP.parts.gate.come_in(&HEAP.os, thread_number()) {
        state.set();
        return None;
    }
    let made = observer::make(cache, interest);
    HEAP.parts.gate.go_out();
    if made.is_some() {
        keep_observer(made);
    }
    State::of(cache, made).set();
    made
}

/// After a slow operation: whether the thread is observed may have changed, and for what.
#[inline]
pub(super) fn follow_settings(state: State) {
    match state {
        State::Sampled(observer) | State::Observed(observer) => observer.follow_settings(),
        State::Owner(_) if observer::is_everyone_observed() => {
            observe(observer::of_everyone());
        }
        State::Owner(_) | State::New | State::Busy | State::Ended => {}
    }
}
