//! A thread's first request, which gives it a cache, and its end, which takes that.

use super::boot::boot;
use super::hooks::hooks;
use super::instance::HEAP;
use super::observer;
use super::purger::purger::PURGER;
use super::state::{State, any_observer, keep_observer};
use super::thread::observe;
use super::tls::thread_number;
use super::{fork, mechanisms, settings};
use crate::cache::cache::Cache;
use core::ptr::NonNull;
use ebb_stats::mechanism::THREAD_EXIT;

/// Gives the calling thread a cache. Without memory for one it goes on without.
#[cold]
pub(super) fn attach() {
    State::Busy.set();
    if !HEAP.parts.gate.come_in(&HEAP.os, thread_number()) {
        return State::New.set();
    }
    boot();
    let made = HEAP.attach();
    HEAP.parts.gate.go_out();
    let Some(cache) = made else {
        return State::New.set();
    };
    // SAFETY: made just now, and it lives until this thread's end.
    State::Owner(unsafe { cache.as_ref() }).set();
    if observer::is_everyone_observed() {
        observe(observer::of_everyone());
    }
    fork::register();
    // The main thread's end is the end of the process.
    if HEAP.os.gettid() != HEAP.os.process_id() {
        // SAFETY: the destructor takes what is passed here. It may allocate: the cache is in place.
        let heard = unsafe { (hooks().on_thread_exit)(thread_ends, cache.as_ptr().cast()) };
        mechanisms::note(THREAD_EXIT, heard);
    }
    settings::confirm();
}

/// libc calls this when a thread that has a cache ends.
unsafe extern "C" fn thread_ends(value: *mut u8) {
    let Some(cache) = NonNull::new(value.cast::<Cache>()) else {
        return;
    };
    State::Busy.set();
    // The cache can be drained nowhere else: a fork that keeps the thread waiting for long may be disturbed.
    let guest = HEAP.parts.gate.come_in(&HEAP.os, thread_number());
    // SAFETY: `value` is what `attach` passed, on this thread, which uses it no more: its word says
    // so since the line above.
    unsafe { HEAP.detach(cache) };
    if let Some(observer) = any_observer() {
        keep_observer(None);
        // SAFETY: the word says BUSY, so nothing finds the record any more, and it goes once.
        unsafe { observer::unmake(observer) };
    }
    if guest {
        HEAP.parts.gate.go_out();
    }
    State::Ended.set();
    PURGER.nudge();
}
