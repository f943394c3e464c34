//! A profile that a tool asks for from outside (`ebb profile`), for as long as it goes on asking. The tool writes to the
//! [`Switch`]; nothing else in the process depends on it.
//!
//! A request is seen by the next slow operation of any thread, or the next tick. It marks the caches, so that each thread
//! comes to its slow path and is sampled from there on. The end is seen there as well, and by the next sample; threads
//! leave their rations at their next slow operation. Blocks that were sampled stay what they are.
//!
//! A tracer that is attached to the probes counts as a request that is renewed by itself; it is seen when 2 MiB were freed,
//! the heap grew, or at a tick.
//!
//! With `prof:true` or `profile:on` the profile is the program's, and a request changes nothing.

use super::super::instance::HEAP;
use super::super::profile_settings as settings;
use super::super::thread::visit_cache;
use super::watch::follow;
use crate::cache::cache::Cache;
use crate::heap::Heap;
use crate::os::Os;
use crate::os::linux::Linux;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_stats::profile::{ACCUMULATES, ACTIVE, BY_SETTINGS, Interpreter, MOST_BYTES, Request, Switch};

/// Freed memory that is worth a thread, or a tick without a pause after it: the usual [`attention`].
pub(crate) const START_BYTES: usize = 2 << 20;
/// No tool comes less often.
const MOST_LEASE_MS: u64 = 60_000;
/// What a tracer asks for; while it is attached no time is over.
const TRACED: Request = Request { number: 0, lg_sample: 19, is_anew: true, users: 0, lease_ms: 1000 };

/// Kept by an attribute, since it is written from outside.
#[used]
static SWITCH: Switch =
    Switch::new((&raw const HEAP).wrapping_byte_add(Heap::<Linux>::PROFILE_TABLE).cast(), START_BYTES);
/// The request that a thread took last. The exchange picks that thread; relaxed.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// When the profile ends, by the monotonic clock in milliseconds; 0 if there is none. The exchange picks the thread
/// that ends it; relaxed.
static UNTIL_MS: AtomicU64 = AtomicU64::new(0);

/// A slow operation looks further when so many bytes were freed, which a tool may set to 0.
#[inline]
pub(crate) fn attention() -> usize {
    SWITCH.attention.load(Ordering::Relaxed)
}

/// What a tool has said of the process's CPython.
pub(super) fn interpreter() -> Option<Interpreter> {
    SWITCH.interpreter()
}

/// In a slow operation, without a lock: answers a tool that has called.
#[inline]
pub(crate) fn answer() {
    if attention() != START_BYTES || is_traced_only() {
        answer_call();
    }
}

/// Whether a tracer waits for a profile.
fn is_traced_only() -> bool {
    HEAP.os.is_traced() && !settings::is_active() && !settings::is_by_settings()
}

#[cold]
fn answer_call() {
    // A child of vfork may end in the middle of what it does to its owner's heap.
    if HEAP.os.is_borrower() || !SWITCH.take_call(START_BYTES) && !is_traced_only() {
        return;
    }
    // Within the cache, so that a signal handler in the middle of this waits for no lock.
    visit_cache(look);
}

/// Follows the last request, and ends the profile if its time is over. The caller has entered its cache, `own`, or is
/// the purger.
pub(crate) fn look(own: Option<&Cache>) {
    let asked = SWITCH.asked.load(Ordering::Acquire);
    let taken = TAKEN.load(Ordering::Relaxed);
    let order = Ordering::Relaxed;
    if asked != taken && TAKEN.compare_exchange(taken, asked, order, order).is_ok() {
        if take(Request::from_word(asked), own) {
            SWITCH.answered.store(asked, Ordering::Release);
        }
    } else if is_over() {
        end(own);
    } else if is_traced_only() && !HEAP.os.is_confined() {
        begin_for_tracer(own);
    }
}

/// In a thread that may wait, and is not inside: ends the profile if its time is over.
pub(crate) fn end_if_over() {
    if is_over() && !HEAP.os.is_borrower() {
        visit_cache(end);
    }
}

fn is_over() -> bool {
    let until = UNTIL_MS.load(Ordering::Relaxed);
    until != 0 && HEAP.os.now_ms() >= until && !HEAP.os.is_traced()
}

/// False where it cannot be followed.
fn take(request: Request, own: Option<&Cache>) -> bool {
    if settings::is_by_settings() {
        return true;
    }
    if HEAP.os.is_confined() {
        return false;
    }
    match u64::from(request.lease_ms).min(MOST_LEASE_MS) {
        0 => end(own),
        lease => {
            let now = HEAP.os.now_ms();
            // A profile whose time is over has ended, also where no thread has seen it.
            let until = UNTIL_MS.swap(now + lease, Ordering::Relaxed);
            if now >= until || request.is_anew || !settings::is_active() {
                begin(request, now, own);
            }
        }
    }
    true
}

fn begin_for_tracer(own: Option<&Cache>) {
    let now = HEAP.os.now_ms();
    let (until, order) = (now + u64::from(TRACED.lease_ms), Ordering::Relaxed);
    if UNTIL_MS.compare_exchange(0, until, order, order).is_ok() {
        begin(TRACED, now, own);
    }
}

fn begin(request: Request, now: u64, own: Option<&Cache>) {
    HEAP.parts.profile.reset(&HEAP.store());
    HEAP.parts.profile.set_accumulates(&HEAP.os, true);
    HEAP.parts.profile.set_most_bytes(&HEAP.os, MOST_BYTES);
    settings::begin_for_tool(request.lg_sample.into());
    set_active(true, own);
    SWITCH.began_ms.store(now, Ordering::Relaxed);
    publish(ACCUMULATES);
}

fn end(own: Option<&Cache>) {
    if UNTIL_MS.swap(0, Ordering::Relaxed) == 0 {
        return;
    }
    set_active(false, own);
    HEAP.parts.profile.set_accumulates(&HEAP.os, false);
    HEAP.parts.profile.reset(&HEAP.store());
    publish(0);
}

fn set_active(active: bool, own: Option<&Cache>) {
    settings::swap_active(active);
    settings::begin_generation();
    follow();
    HEAP.mark_caches(own);
}

/// What the program's own profile is, for tools that only read.
pub(crate) fn publish_settings() {
    if settings::is_by_settings() {
        let accumulates = if HEAP.parts.profile.accumulates(&HEAP.os) { ACCUMULATES } else { 0 };
        publish(BY_SETTINGS | accumulates);
    }
}

fn publish(flags: u64) {
    let active = if settings::is_active() { ACTIVE } else { 0 };
    SWITCH.state.store(u64::from(settings::lg_sample()) | active | flags, Ordering::Relaxed);
}
