//! The slow way into the heap: a thread without a cache is attached first, and afterwards the purger is started if
//! there is enough to do.

use super::attach::attach;
use super::instance::HEAP;
use super::observer::Observer;
use super::purger::purger::PURGER;
use super::state::{self, State};
use super::thread::{entered, follow_settings, outside, visit, waited_for_thaw};
use super::tls::{is_relocated, thread_number};
use super::{early, fork};
use crate::cache::cache::Cache;
use crate::heap::Access;

/// Calls `work` with the access that the calling thread has.
#[inline]
pub fn with_access<R>(work: impl FnOnce(Access) -> R) -> R {
    fork::notice();
    if state::is_new() {
        if !is_relocated() {
            early::relocate_self();
            return work(Access::Direct);
        }
        if HEAP.parts.gate.is_closed_to(thread_number()) && !waited_for_thaw() {
            return outside(State::New, work);
        }
        attach();
    }
    visit(work, |state| {
        follow_settings(state);
        PURGER.nudge();
    })
}

/// Calls `work` with the calling thread's cache, entered, or with `None` if it has none or cannot enter it.
pub fn with_own_cache<R>(work: impl FnOnce(Option<&Cache>) -> R) -> R {
    with_access(|access| work(entered(access)))
}

/// The calling thread's observer, if what the cache in its word did not serve is to be looked at.
#[inline(always)]
pub fn observer() -> Option<&'static Observer> {
    match state::observer() {
        None if state::is_new() => observer_of_new_thread(),
        observer => observer,
    }
}

/// A new thread's first request: gives it a cache, so that this request is looked at as well if all are.
#[cold]
fn observer_of_new_thread() -> Option<&'static Observer> {
    if !is_relocated() {
        return None;
    }
    fork::notice();
    attach();
    state::observer()
}
