//! The purger's thread: started on the first few MiB of freed memory, gone when nothing is left to
//! do, so that an idle process has no thread and no wake-up.
//!
//! It ticks twice a second. What it does in a tick is the heap's business; here is only when.

use super::instance::HEAP;
use super::publish;
use crate::os::Os;
use crate::os::linux::Spawned;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Freed memory that is worth a thread.
const START_BYTES: usize = 2 << 20;
/// Default time between ticks. A page goes after two: half a second to a second after it became free.
const INTERVAL_MS: u64 = 500;
/// The shortest time between ticks that a setting can ask for.
const LEAST_INTERVAL_MS: u64 = 10;
/// Ticks without any work after which the thread ends, when nothing is left in any cache.
const QUIET_TICKS: u32 = 2;
/// The same when running threads keep slots in their caches.
const QUIET_TICKS_CACHED: u32 = 10;

const NONE: u8 = 0;
const STARTING: u8 = 1;
const RUNS: u8 = 2;

/// Whether the thread runs. Set by compare-and-swap before it is started, cleared by itself.
static STATE: AtomicU8 = AtomicU8::new(NONE);
/// Word that the thread sleeps on: 1 asks it to end. Release and acquire, so that it sees why.
static STOP: AtomicU32 = AtomicU32::new(0);
/// It was stopped with work left: to be started again at the next slow operation.
static WANTED: AtomicBool = AtomicBool::new(false);
/// User and group of the thread that started it, which are its own: libc tells its own threads when
/// they change, and the purger is none of them.
static IDS: AtomicU64 = AtomicU64::new(0);
/// Set at each tick: the next slow operation compares them with its own.
static LOOK: AtomicBool = AtomicBool::new(false);
/// Set while nobody may start it.
static HELD: AtomicU32 = AtomicU32::new(0);
/// No thread can be had: slow paths tick, at the times below.
static THREADLESS: AtomicBool = AtomicBool::new(false);
static NEXT_TICK_MS: AtomicU64 = AtomicU64::new(0);
/// Settings: off means that nothing is returned but by trim.
static OFF: AtomicBool = AtomicBool::new(false);
/// Time between ticks, in milliseconds. Set at boot.
static INTERVAL: AtomicU64 = AtomicU64::new(INTERVAL_MS);

/// Switches purging off, before the first request.
pub(super) fn switch_off() {
    OFF.store(true, Ordering::Relaxed);
}

/// Settings: nothing stays idle for longer than `bound` milliseconds, two ticks.
pub(super) fn bound_idle_time(bound: u64) {
    INTERVAL.store(
        (bound / 2).clamp(LEAST_INTERVAL_MS, INTERVAL_MS),
        Ordering::Relaxed,
    );
}

/// Settings, or a sandbox: no thread; slow paths do its work.
pub(super) fn forbid_thread() {
    THREADLESS.store(true, Ordering::Relaxed);
}

/// The longest that a page stays idle, in milliseconds; `None` for ever.
pub(super) fn idle_time_ms() -> Option<u64> {
    is_on().then(|| 2 * INTERVAL.load(Ordering::Relaxed))
}

/// Whether purging is on.
pub(super) fn is_on() -> bool {
    !OFF.load(Ordering::Relaxed)
}

/// Whether a thread can be had, as far as is known.
pub(super) fn has_thread() -> bool {
    !THREADLESS.load(Ordering::Relaxed)
}

/// After a slow operation: starts the thread if there is enough to do.
#[inline]
pub(super) fn nudge() {
    if HEAP.freed_bytes() >= START_BYTES || WANTED.load(Ordering::Relaxed) {
        nudge_slow();
    }
}

#[cold]
fn nudge_slow() {
    forget_if_killed();
    let known = STATE.load(Ordering::Relaxed);
    if known == RUNS && LOOK.load(Ordering::Relaxed) && LOOK.swap(false, Ordering::Relaxed) {
        end_if_it_kept_rights();
    }
    // A child of vfork starts none: it would be killed there in the middle of its owner's heap.
    if known != NONE || !is_on() || HELD.load(Ordering::Relaxed) != 0 || HEAP.os.is_borrower() {
        return;
    }
    if THREADLESS.load(Ordering::Relaxed) {
        return tick_inline();
    }
    if STATE
        .compare_exchange(NONE, STARTING, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return;
    }
    WANTED.store(false, Ordering::Relaxed);
    STOP.store(0, Ordering::Release);
    IDS.store(HEAP.os.effective_ids(), Ordering::Relaxed);
    // SAFETY: `purger_main` calls no libc and reads no thread-local of it.
    let spawned = unsafe { HEAP.os.spawn(purger_main, core::ptr::null_mut()) };
    if spawned == Spawned::Refused {
        THREADLESS.store(true, Ordering::Relaxed);
    }
    // It may have ended by now, and then it is not we who say so.
    let started = spawned == Spawned::Running;
    let _ = STATE.compare_exchange(
        STARTING,
        if started { RUNS } else { NONE },
        Ordering::Release,
        Ordering::Relaxed,
    );
}

/// The program has become another user since the thread started: another one is started in its place,
/// with the program's rights of now.
#[cold]
fn end_if_it_kept_rights() {
    if HEAP.os.effective_ids() != IDS.load(Ordering::Relaxed) && !HEAP.os.is_borrower() {
        hold();
        let_go();
    }
}

/// A filter may kill the thread by itself: what it has not said, its absence says.
fn forget_if_killed() {
    if STATE.load(Ordering::Relaxed) == RUNS && !HEAP.os.purger_lives() {
        let _ = STATE.compare_exchange(RUNS, NONE, Ordering::Acquire, Ordering::Relaxed);
    }
}

/// Where no thread can be had, a slow operation now and then does a tick's work.
fn tick_inline() {
    let now = HEAP.os.now_ms();
    let next = NEXT_TICK_MS.load(Ordering::Relaxed);
    if now >= next
        && NEXT_TICK_MS
            .compare_exchange(
                next,
                now + INTERVAL.load(Ordering::Relaxed),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    {
        HEAP.follow_address_space_limit();
        // The second tick must not wait for as much freed memory again.
        WANTED.store(HEAP.tick().more, Ordering::Relaxed);
    }
}

unsafe extern "C" fn purger_main(_: *mut u8) {
    let mut quiet = 0;
    let mut locked = false;
    loop {
        // Until the interval is over or somebody wants us gone; a wake for no reason waits on.
        let until = HEAP.os.now_ms() + INTERVAL.load(Ordering::Relaxed);
        loop {
            let now = HEAP.os.now_ms();
            if STOP.load(Ordering::Acquire) != 0 {
                WANTED.store(true, Ordering::Relaxed);
                STATE.store(NONE, Ordering::Release);
                return;
            }
            if now >= until {
                break;
            }
            HEAP.os.wait(&STOP, 0, Some(until - now));
        }
        let before = HEAP.os.thread_cpu_ns();
        let tick = HEAP.tick();
        HEAP.follow_address_space_limit();
        LOOK.store(true, Ordering::Relaxed);
        publish::after_tick(HEAP.os.thread_cpu_ns() - before);
        // Locked memory is tried again and again, but is no reason to stay.
        locked = tick.returned_bytes == 0 && (locked || tick.refused_bytes > 0);
        let works = tick.returned_bytes > 0 || tick.drained_bytes > 0 || HEAP.freed_bytes() > 0;
        if works || tick.more && !locked {
            quiet = 0;
            continue;
        }
        quiet += 1;
        if quiet
            >= if tick.cached_bytes == 0 {
                QUIET_TICKS
            } else {
                QUIET_TICKS_CACHED
            }
        {
            STATE.store(NONE, Ordering::Release);
            return;
        }
    }
}

/// Stops the thread and waits for its end; nobody can start it until [`let_go`]. Its work is taken
/// up again then, at the next slow operation.
pub(super) fn hold() {
    HELD.fetch_add(1, Ordering::Relaxed);
    // A start under way ends with a thread that sees STOP, or without one.
    loop {
        STOP.store(1, Ordering::Release);
        HEAP.os.wake(&STOP, 1);
        HEAP.os.join_purger();
        forget_if_killed();
        if STATE.load(Ordering::Acquire) == NONE {
            return;
        }
        HEAP.os.yield_now();
    }
}

/// Undoes [`hold`].
pub(super) fn let_go() {
    HELD.fetch_sub(1, Ordering::Relaxed);
}

/// In a child: there is no such thread here, whatever the parent had.
pub(super) fn forget() {
    HEAP.os.forget_purger();
    STATE.store(NONE, Ordering::Relaxed);
    HELD.store(0, Ordering::Relaxed);
    WANTED.store(false, Ordering::Relaxed);
}
