//! The purger's thread: started on the first few MiB of freed memory, gone when nothing is left to
//! do, so that an idle process has no thread and no wake-up.
//!
//! It ticks every T, which `arena::delay` derives from what returning costs here and what memory is
//! worth. What it does in a tick is the heap's business; here is only when.

use super::growth;
use super::instance::HEAP;
use super::pause::{self, Rhythm};
use super::publish::{self, Purging};
use super::thread::{set_apart, visit_cache};
use crate::arena::delay::{self, Cost};
use crate::base::life::{Futex, Life, Order, Start};
use crate::cache::cache::Cache;
use crate::heap::tick::Tick;
use crate::os::Os;
use crate::os::linux::Linux;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Freed memory that is worth a thread.
pub(super) const START_BYTES: usize = 2 << 20;
/// The shortest time between ticks that a setting can ask for.
const LEAST_INTERVAL_MS: u64 = 10;
/// Ticks without any work after which the thread ends, when nothing is left in any cache.
const QUIET_TICKS: u32 = 2;
/// The same when running threads keep slots in their caches.
const QUIET_TICKS_CACHED: u32 = 10;

/// Whether the thread is there, and what it is to do.
static LIFE: Life = Life::new();
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
/// It is not started again before this time, in milliseconds. Relaxed: a start too early or too late harms nothing.
static NOT_BEFORE_MS: AtomicU64 = AtomicU64::new(0);
/// When it was held away last. Relaxed, as above.
static HELD_MS: AtomicU64 = AtomicU64::new(0);
/// A program that holds it away again within this time gets it back only so much later: a start costs more than a hold.
const BREATH_MS: u64 = 100;
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
        set_apart(|| HEAP.return_extents());
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
    LIFE.is_there()
}

/// Time between ticks, in milliseconds.
pub(super) fn tick_ms() -> u64 {
    interval_ms()
}

/// What is published of it.
pub(super) fn standing() -> Purging {
    Purging {
        idle_time_ms: idle_time_ms(),
        by_thread: has_thread() && is_on(),
    }
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
    let grown = growth::look(standing());
    if pause::is_over(grown) {
        LIFE.hasten(&HEAP.os);
    }
    if HEAP.freed_bytes() < START_BYTES && wanted & START == 0 {
        return;
    }
    if LIFE.is_there() {
        if LOOK.load(Ordering::Relaxed) && LOOK.swap(false, Ordering::Relaxed) {
            end_if_it_kept_rights();
        }
        return;
    }
    // A child of vfork starts none: it would be killed there in the middle of its owner's heap.
    if !is_on() || LIFE.is_held() || HEAP.os.is_borrower() {
        return;
    }
    if THREADLESS.load(Ordering::Relaxed) {
        return tick_inline();
    }
    let not_before = NOT_BEFORE_MS.load(Ordering::Relaxed);
    if not_before == 0 || HEAP.os.now_ms() >= not_before {
        start();
    }
}

fn start() {
    NOT_BEFORE_MS.store(0, Ordering::Relaxed);
    let clone = |word: &'static AtomicU32| {
        WANTED.fetch_and(!START, Ordering::Relaxed);
        IDS.store(HEAP.os.effective_ids(), Ordering::Relaxed);
        // SAFETY: `purger_main` calls no libc and reads no thread-local of it. Signals are blocked, and `start` calls this
        // for one thread at a time.
        unsafe { HEAP.os.spawn(word, purger_main, core::ptr::null_mut()) }
    };
    // Blocked before the start begins: a handler that forked in the middle of it would wait for its own thread.
    if HEAP.os.without_signals(|| LIFE.start(&HEAP.os, clone)) == Start::Refused {
        THREADLESS.store(true, Ordering::Relaxed);
    }
}

impl Futex for Linux {
    fn sleep(&self, word: &AtomicU32, expected: u32, timeout_ms: Option<u64>) {
        self.wait_shared(word, expected, timeout_ms);
    }

    fn wake(&self, word: &AtomicU32) {
        self.wake_shared(word);
    }
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
        let (tick, _) = visit_cache(|own| {
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
    // Whatever the first tick sees free has T before the second. So it can come early.
    let mut wait_ms = interval_ms() / 2;
    let mut rhythm = Rhythm::new();
    loop {
        if !sleep(wait_ms, &mut rhythm) {
            WANTED.fetch_or(START, Ordering::Relaxed);
            return;
        }
        // Not before the first sleep: the kernel takes up to 10 ms for it, and the end of a short program would wait.
        HEAP.os.prepare_membarrier();
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
        let resident = publish::after_tick(cpu_ns, standing());
        let most_ms = MOST_INTERVAL_MS.load(Ordering::Relaxed);
        wait_ms = rhythm.wait_ms(&tick, freed_bytes, cpu_ns, resident, interval_ms(), most_ms);
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
        match LIFE.order() {
            Order::End => return false,
            Order::Hasten => {
                rhythm.disturbed();
                until = until.min(now + interval_ms() / 2);
            }
            Order::Nothing if now >= until => break,
            Order::Nothing => LIFE.sleep(&HEAP.os, until - now),
        }
    }
    pause::end();
    true
}

/// Stops the thread and waits for its end; nobody can start it until [`let_go`]. Its work is taken
/// up again then, at the next slow operation.
pub(super) fn hold() {
    LIFE.begin_hold(&HEAP.os);
    LIFE.wait_for_end(&HEAP.os, None);
    HEAP.os.see_purger_off();
}

/// [`hold`] in a signal handler that interrupted a request: the thread may be waiting for what that holds, and is waited
/// for no longer than it usually takes. It ends as soon as it can.
pub(super) fn hold_for_moment() {
    const TURNS: u32 = 5;
    LIFE.begin_hold(&HEAP.os);
    LIFE.wait_for_end(&HEAP.os, Some(TURNS));
}

/// Ends the thread as soon as it can, for good.
pub(super) fn end() {
    LIFE.begin_hold(&HEAP.os);
}

/// Undoes [`hold`].
pub(super) fn let_go() {
    let now = HEAP.os.now_ms();
    if HELD_MS.swap(now, Ordering::Relaxed) + BREATH_MS > now {
        NOT_BEFORE_MS.store(now + BREATH_MS, Ordering::Relaxed);
    }
    LIFE.let_go();
}

/// In a child: there is no such thread here, whatever the parent had.
pub(super) fn forget() {
    HEAP.os.forget_purger();
    LIFE.forget();
    WANTED.fetch_and(!START, Ordering::Relaxed);
}
