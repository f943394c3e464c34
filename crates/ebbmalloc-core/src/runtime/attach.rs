//! The first request of the process, which boots it; a thread's first request, which gives it a cache, and its end, which
//! takes that.

use super::checks::{early, is_strict};
use super::hooks::hooks;
use super::instance::HEAP;
use super::observer::{self, Interest, Observer};
use super::purger::purger::PURGER;
use super::state::{State, any_observer, keep_observer};
use super::thread::observe;
use super::tls::thread_number;
use super::{fork, mechanisms, publish, report_file, settings};
use crate::cache::cache::Cache;
use crate::os::Os;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ebb_stats::mechanism::THREAD_EXIT;

/// The boot has begun. A second thread does not wait for its end: it goes on with the default settings, which are valid
/// at any time. Relaxed: nothing is read because of it.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// When the boot began, by the monotonic clock; 0 before. Written once, relaxed.
static BOOT_MS: AtomicU64 = AtomicU64::new(0);

/// When the process booted, by the monotonic clock in milliseconds; 0 before.
pub fn boot_ms() -> u64 {
    BOOT_MS.load(Ordering::Relaxed)
}

/// Once in a process: reads the settings and marks the process. Called in a slow path without a
/// lock, with the thread marked as busy, so that what libc allocates meanwhile is served.
fn boot() {
    if BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    HEAP.os.mark_alive();
    BOOT_MS.store(HEAP.os.now_ms(), Ordering::Relaxed);
    settings::read();
    early::end();
    // Not in the purger: a descriptor opened there could be the one that the program expects.
    HEAP.os.prepare_scarce();
    publish::open_file();
    report_file::listen();
}

/// Gives the calling thread a cache. Without memory for one it goes on without.
#[cold]
pub(super) fn attach() {
    State::Busy.set();
    if !HEAP.parts.gate.come_in(&HEAP.os, thread_number()) {
        return State::New.set();
    }
    boot();
    let made = HEAP.attach().and_then(observed_in_strict_mode);
    HEAP.parts.gate.go_out();
    let Some((cache, observer)) = made else {
        return State::New.set();
    };
    // SAFETY: made just now, and it lives until this thread's end.
    State::of(unsafe { cache.as_ref() }, observer).set();
    if observer.is_none() && observer::is_everyone_observed() {
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

/// In strict mode a thread has no moment in which its frees go to its cache: the observer comes before the cache is known.
/// Without memory for it there is no cache either.
fn observed_in_strict_mode(cache: NonNull<Cache>) -> Option<(NonNull<Cache>, Option<&'static Observer>)> {
    if !is_strict() {
        return Some((cache, None));
    }
    // SAFETY: made just now, and it lives until this thread's end.
    let observer = observer::make(unsafe { cache.as_ref() }, Interest::Requests);
    if observer.is_none() {
        // SAFETY: no thread knows the cache.
        unsafe { HEAP.detach(cache) };
        return None;
    }
    keep_observer(observer);
    Some((cache, observer))
}

/// libc calls this when a thread that has a cache ends.
unsafe extern "C" fn thread_ends(value: *mut u8) {
    let Some(cache) = NonNull::new(value.cast::<Cache>()) else {
        return;
    };
    State::Busy.set();
    // The cache can be drained nowhere else: a fork that keeps the thread waiting for long may be disturbed.
    let guest = HEAP.parts.gate.come_in(&HEAP.os, thread_number());
    let observer = any_observer();
    // SAFETY: `value` is what `attach` passed, on this thread, which uses it no more: its word says so since the first line.
    // So nothing finds the observer's record any more either, and it goes once.
    unsafe {
        match observer {
            None => HEAP.leave(cache),
            Some(observer) => {
                observer.empty_ring();
                HEAP.detach(cache);
                keep_observer(None);
                observer::unmake(observer);
            }
        }
    }
    if guest {
        HEAP.parts.gate.go_out();
    }
    State::Ended.set();
    PURGER.nudge();
}
