//! The purger's thread: started on the first few MiB of freed memory, gone when nothing is left to
//! do, so that an idle process has no thread and no wake-up.
//!
//! It ticks every T, which `arena::delay` derives from what returning costs here and what memory is
//! worth. What it does in a tick is the heap's business; here is only when.

use super::instance::HEAP;
use super::pause::{self, Rhythm};
use super::{growth, publish, thread};
use crate::arena::delay::{self, Cost};
use crate::cache::cache::Cache;
use crate::heap::tick::Tick;
use crate::os::Os;
use crate::os::linux::Spawned;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Freed memory that is worth a thread.
pub(super) const START_BYTES: usize = 2 << 20;
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
/// Word that the thread sleeps on. Release and acquire, so that it sees why.
static STOP: AtomicU32 = AtomicU32::new(SLEEPS);
/// Nothing is wanted of it.
const SLEEPS: u32 = 0;
/// It is to end.
const END: u32 = 1;
/// Its pause is over.
const HASTEN: u32 = 2;
/// What the next slow operation is wanted for: the flags below.
static WANTED: AtomicU8 = AtomicU8::new(0);
/// The thread was stopped with work left: it is to be started again.
const START: u8 = 1;
/// Free extents stay for no time at all: every slow operation returns what there is, its own for the most
/// part.
const AT_ONCE: u8 = 2;
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
/// Off means that nothing is returned but by trim. Relaxed: seen at the next slow operation.
static OFF: AtomicBool = AtomicBool::new(false);
/// Settings: bytes that are worth a processor. Written at boot only.
static BYTES_PER_CORE: AtomicU64 = AtomicU64::new(delay::BYTES_PER_CORE);
/// The longest time between ticks, in milliseconds, by decay times. Relaxed: seen at the next tick.
static MOST_INTERVAL_MS: AtomicU64 = AtomicU64::new(u64::MAX);
/// What returning has cost: the fields of a [`delay::Cost`]. Written by whoever ticks, one at a time
/// but for a race of two slow paths, which loses a sample.
static COST_CPU_NS: AtomicU64 = AtomicU64::new(Cost::PRIOR.cpu_ns);
static COST_PAGES: AtomicU64 = AtomicU64::new(Cost::PRIOR.pages);

/// Nothing stays idle for longer than `bound` milliseconds, two ticks, and free extents not at all if
/// that is 0; with `off` nothing is ever returned but by trim.
pub(super) fn set_idle_bound(bound: Option<u64>, off: bool) {
    if bound == Some(0) && !off {
        WANTED.fetch_or(AT_ONCE, Ordering::Relaxed);
    } else {
        WANTED.fetch_and(!AT_ONCE, Ordering::Relaxed);
    }
    let most = bound.map_or(u64::MAX, |bound| (bound / 2).max(LEAST_INTERVAL_MS));
    MOST_INTERVAL_MS.store(most, Ordering::Relaxed);
    OFF.store(off, Ordering::Relaxed);
}

/// Returns free extents now, where that can be done: not in a child of vfork.
#[cold]
pub(super) fn return_extents() {
    if !HEAP.os.is_borrower() {
        thread::set_apart(|| HEAP.return_extents());
    }
}

/// Where no thread can be had, does a tick's work if one is due.
pub(super) fn tick_if_threadless() {
    if is_on() && !has_thread() {
        tick_inline();
    }
}

/// Settings: so many bytes of memory are worth one processor.
pub(super) fn set_memory_price(bytes_per_core: u64) {
    BYTES_PER_CORE.store(bytes_per_core, Ordering::Relaxed);
}

/// Bytes of memory that are worth one processor.
pub(super) fn memory_price() -> u64 {
    BYTES_PER_CORE.load(Ordering::Relaxed)
}

fn cost() -> Cost {
    Cost {
        cpu_ns: COST_CPU_NS.load(Ordering::Relaxed),
        pages: COST_PAGES.load(Ordering::Relaxed),
    }
}

/// Time between ticks, in milliseconds: T, or what a setting bounds it to.
fn interval_ms() -> u64 {
    let page_bytes = HEAP.os.page_bytes();
    delay::break_even_ms(cost().per_page_ns(), page_bytes, memory_price())
        .min(MOST_INTERVAL_MS.load(Ordering::Relaxed))
}

/// A tick, and what it costs noted; how much CPU that was, in nanoseconds.
fn measured_tick(own: Option<&Cache>) -> (Tick, u64) {
    let before = HEAP.os.thread_cpu_ns();
    let tick = HEAP.tick(own);
    let cpu_ns = HEAP.os.thread_cpu_ns().saturating_sub(before);
    let pages = tick.returned_bytes / HEAP.os.page_bytes();
    let cost = cost().after_tick(cpu_ns, pages as u64);
    COST_CPU_NS.store(cost.cpu_ns, Ordering::Relaxed);
    COST_PAGES.store(cost.pages, Ordering::Relaxed);
    (tick, cpu_ns)
}

/// Settings, or a sandbox: no thread; slow paths do its work.
pub(super) fn forbid_thread() {
    THREADLESS.store(true, Ordering::Relaxed);
}

/// Lets slow paths or a thread do the work from now on.
pub(super) fn set_thread(on: bool) {
    if on {
        THREADLESS.store(false, Ordering::Relaxed);
    } else if !THREADLESS.swap(true, Ordering::Relaxed) {
        hold();
        let_go();
    }
}

/// The longest that a page stays idle, in milliseconds; `None` for ever.
pub(super) fn idle_time_ms() -> Option<u64> {
    is_on().then(|| 2 * interval_ms())
}

/// Whether the thread runs.
pub(super) fn runs() -> bool {
    STATE.load(Ordering::Relaxed) == RUNS
}

/// Time between ticks, in milliseconds.
pub(super) fn tick_ms() -> u64 {
    interval_ms()
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
    if HEAP.attention() >= START_BYTES || WANTED.load(Ordering::Relaxed) != 0 {
        nudge_slow();
    }
}

#[cold]
fn nudge_slow() {
    let wanted = WANTED.load(Ordering::Relaxed);
    if wanted & AT_ONCE != 0 {
        return_extents();
    }
    let grown = growth::look();
    if pause::is_over(grown)
        && STOP
            .compare_exchange(SLEEPS, HASTEN, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    {
        HEAP.os.wake(&STOP, 1);
    }
    if HEAP.freed_bytes() < START_BYTES && wanted & START == 0 {
        return;
    }
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
    STOP.store(SLEEPS, Ordering::Release);
    // Partner: the fence in `hold`. Whoever holds sees that a start is under way and waits for its end, or is seen here;
    // an END of its own is then never overwritten by the line above, which would leave it waiting for a thread that sleeps on.
    fence(Ordering::SeqCst);
    if HELD.load(Ordering::Relaxed) != 0 {
        STATE.store(NONE, Ordering::Release);
        return;
    }
    WANTED.fetch_and(!START, Ordering::Relaxed);
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

/// Where no thread can be had, a slow operation now and then does a tick's work; within its cache, so
/// that a signal handler in the middle of it waits for no lock.
fn tick_inline() {
    let now = HEAP.os.now_ms();
    let next = NEXT_TICK_MS.load(Ordering::Relaxed);
    if now >= next
        && NEXT_TICK_MS
            .compare_exchange(
                next,
                now + interval_ms(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    {
        // The second tick must not wait for as much freed memory again.
        let (tick, _) = thread::with_own_cache(|own| {
            HEAP.is_still_near_limit();
            measured_tick(own)
        });
        if tick.more {
            WANTED.fetch_or(START, Ordering::Relaxed);
        } else {
            WANTED.fetch_and(!START, Ordering::Relaxed);
        }
    }
}

unsafe extern "C" fn purger_main(_: *mut u8) {
    let mut quiet = 0;
    let mut locked = false;
    let mut descriptors_left = false;
    HEAP.os.prepare_membarrier();
    // Whatever the first tick sees free has T before the second. So it can come early.
    let mut wait_ms = interval_ms() / 2;
    let mut rhythm = Rhythm::new();
    loop {
        if !sleep(wait_ms, &mut rhythm) {
            WANTED.fetch_or(START, Ordering::Relaxed);
            STATE.store(NONE, Ordering::Release);
            return;
        }
        let freed_bytes = HEAP.freed_bytes();
        let before = HEAP.os.thread_cpu_ns();
        // A single-threaded program may rely on the numbers of its descriptors.
        descriptors_left =
            HEAP.is_near_limit() && (descriptors_left || HEAP.os.leave_descriptors());
        if descriptors_left {
            HEAP.is_still_near_limit();
        }
        let (tick, _) = measured_tick(None);
        LOOK.store(true, Ordering::Relaxed);
        let cpu_ns = HEAP.os.thread_cpu_ns() - before;
        publish::after_tick(cpu_ns);
        let most_ms = MOST_INTERVAL_MS.load(Ordering::Relaxed);
        wait_ms = rhythm.wait_ms(&tick, freed_bytes, cpu_ns, interval_ms(), most_ms);
        // Locked memory is tried again and again, but is no reason to stay.
        locked = tick.returned_bytes == 0 && (locked || tick.refused_bytes > 0);
        let works = tick.returned_bytes > 0 || tick.drained_bytes > 0 || HEAP.freed_bytes() > 0;
        if works || tick.more && !locked {
            quiet = 0;
            continue;
        }
        quiet += 1;
        pause::end();
        wait_ms = interval_ms();
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

/// Sleeps for `wait_ms`, or until half an interval after a burst has ended the pause; a wake for no reason
/// waits on. False as soon as somebody wants the thread gone.
fn sleep(wait_ms: u64, rhythm: &mut Rhythm) -> bool {
    let mut until = HEAP.os.now_ms() + wait_ms;
    loop {
        let now = HEAP.os.now_ms();
        match STOP.load(Ordering::Acquire) {
            END => return false,
            HASTEN => {
                // END may have come meanwhile, and stays.
                let _ = STOP.compare_exchange(HASTEN, SLEEPS, Ordering::Relaxed, Ordering::Relaxed);
                rhythm.disturbed();
                until = until.min(now + interval_ms() / 2);
            }
            _ if now >= until => break,
            _ => HEAP.os.wait(&STOP, SLEEPS, Some(until - now)),
        }
    }
    pause::end();
    true
}

/// Stops the thread and waits for its end; nobody can start it until [`let_go`]. Its work is taken
/// up again then, at the next slow operation.
pub(super) fn hold() {
    HELD.fetch_add(1, Ordering::Relaxed);
    // Partner: the fence in `nudge_slow`. A start that has not seen HELD stored SLEEPS before our END.
    fence(Ordering::SeqCst);
    // A start under way ends with a thread that sees STOP, or without one.
    loop {
        STOP.store(END, Ordering::Release);
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
    WANTED.fetch_and(!START, Ordering::Relaxed);
}
