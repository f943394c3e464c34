//! The purger: decides whether there is work, and runs the ticks. Its thread starts when the first 2 MiB have been freed
//! and ends when nothing is left to do, so an idle process has no extra thread and no wake-ups.

use super::super::growth;
use super::super::instance::HEAP;
use super::super::profile::lease;
use super::super::publish::{self, Purging};
use super::super::thread::{set_apart, visit_cache};
use super::pause::{Pause, Rhythm, START_BYTES, Ticked};
use super::schedule::Schedule;
use super::stalls::Watch;
use super::thread::Thread;
use crate::base::life::Order;
use crate::cache::cache::Cache;
use crate::heap::tick::Tick;
use crate::os::Os;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// In [`Purger::wanted`]: the thread was stopped with work left, and is to be started again.
const START: u8 = 1;
/// In [`Purger::wanted`]: free extents are returned at once, by every slow operation; mostly extents that it freed
/// itself.
const AT_ONCE: u8 = 2;
/// Ticks without any work after which the thread ends, when nothing is left in any cache.
const QUIET_TICKS: u32 = 2;
/// The same when running threads keep slots in their caches.
const QUIET_TICKS_CACHED: u32 = 10;

/// The purger of this process's heap.
pub(crate) static PURGER: Purger = Purger::new();

/// See the module.
pub(crate) struct Purger {
    pub(crate) schedule: Schedule,
    pub(super) pause: Pause,
    pub(crate) thread: Thread,
    /// What the next slow operation has to do: [`START`], [`AT_ONCE`].
    wanted: AtomicU8,
    /// There can be no thread: slow operations make the ticks, at the times below.
    threadless: AtomicBool,
    next_tick_ms: AtomicU64,
}

impl Purger {
    const fn new() -> Self {
        Self {
            schedule: Schedule::new(),
            pause: Pause::new(),
            thread: Thread::new(),
            wanted: AtomicU8::new(0),
            threadless: AtomicBool::new(false),
            next_tick_ms: AtomicU64::new(0),
        }
    }

    fn wants(&self, flag: u8) -> bool {
        self.wanted.load(Ordering::Relaxed) & flag != 0
    }

    fn set_wanted(&self, flag: u8, wanted: bool) {
        if wanted {
            self.wanted.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.wanted.fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// Nothing stays idle for longer than `bound` milliseconds, two ticks, and free extents not at all if
    /// that is 0; with `off` nothing is ever returned but by trim.
    pub(crate) fn set_idle_bound(&self, bound: Option<u64>, off: bool) {
        self.set_wanted(AT_ONCE, bound == Some(0) && !off);
        self.schedule.set_bound(bound, off);
    }

    /// Settings, or a sandbox: no thread; slow paths do its work.
    pub(crate) fn forbid_thread(&self) {
        self.threadless.store(true, Ordering::Relaxed);
    }

    /// Lets slow paths or a thread do the work from now on.
    pub(crate) fn set_thread(&self, on: bool) {
        if on {
            self.threadless.store(false, Ordering::Relaxed);
        } else if !self.threadless.swap(true, Ordering::Relaxed) {
            self.thread.hold();
            self.thread.let_go();
        }
    }

    /// Whether a thread can be had, as far as is known.
    pub(crate) fn has_thread(&self) -> bool {
        !self.threadless.load(Ordering::Relaxed)
    }

    /// Time between ticks, in milliseconds.
    pub(crate) fn interval_ms(&self) -> u64 {
        self.schedule.interval_ms(HEAP.os.page_bytes())
    }

    /// The longest that a page stays idle, in milliseconds; `None` for ever.
    pub(crate) fn idle_time_ms(&self) -> Option<u64> {
        self.schedule.is_on().then(|| 2 * self.interval_ms())
    }

    /// The state that is published.
    pub(crate) fn standing(&self) -> Purging {
        Purging { idle_time_ms: self.idle_time_ms(), by_thread: self.has_thread() && self.schedule.is_on() }
    }

    /// After a slow operation, without a lock: does or starts what is due.
    #[inline]
    pub(crate) fn nudge(&'static self) {
        if HEAP.attention() >= lease::attention() || self.wanted.load(Ordering::Relaxed) != 0 {
            self.attend();
        }
    }

    #[cold]
    fn attend(&'static self) {
        lease::answer();
        let starts = self.wants(START);
        if self.wants(AT_ONCE) {
            self.purge_extents();
        }
        let grown = HEAP.take_growth_step();
        if grown {
            growth::follow(self.standing());
        }
        if self.pause.end_after_burst(grown) {
            self.thread.hasten();
        }
        if HEAP.freed_bytes() < START_BYTES && !starts {
            return;
        }
        if self.thread.runs() {
            return self.thread.end_if_it_kept_rights();
        }
        // A child of vfork starts none: it would be killed there in the middle of its owner's heap.
        if !self.schedule.is_on() || self.thread.is_held() || HEAP.os.is_borrower() {
            return;
        }
        if !self.has_thread() {
            return self.tick_inline();
        }
        if self.thread.has_rested() {
            self.start();
        }
    }

    fn start(&'static self) {
        let begin = || self.set_wanted(START, false);
        // SAFETY: `run_purger` calls no libc, reads no thread-local of it, and takes nothing.
        if !unsafe { self.thread.start(run_purger, null_mut(), begin) } {
            self.forbid_thread();
        }
    }

    /// Returns free extents now, where that can be done: not in a child of vfork.
    #[cold]
    pub(crate) fn purge_extents(&self) {
        if !HEAP.os.is_borrower() {
            set_apart(|| HEAP.purge_extents());
        }
    }

    /// Where no thread can be had, does a tick's work if one is due.
    pub(crate) fn tick_if_threadless(&self) {
        if self.schedule.is_on() && !self.has_thread() {
            self.tick_inline();
        }
    }

    /// If there can be no thread, a slow operation makes a tick when one is due. It has entered its cache meanwhile, so a
    /// signal handler that interrupts it waits for no lock.
    fn tick_inline(&self) {
        let now = HEAP.os.now_ms();
        let next = self.next_tick_ms.load(Ordering::Relaxed);
        let (order, after) = (Ordering::Relaxed, now + self.interval_ms());
        if now < next || self.next_tick_ms.compare_exchange(next, after, order, order).is_err() {
            return;
        }
        let tick = visit_cache(|own| {
            HEAP.refresh_pressure();
            self.measured_tick(own)
        });
        // The second tick must not wait for as much freed memory again.
        self.set_wanted(START, tick.more);
    }

    /// A tick, and what it costs noted.
    fn measured_tick(&self, own: Option<&Cache>) -> Tick {
        let before = HEAP.os.thread_cpu_ns();
        let tick = HEAP.tick(own);
        let cpu_ns = HEAP.os.thread_cpu_ns().saturating_sub(before);
        let pages = tick.returned_bytes / HEAP.os.page_bytes();
        self.schedule.note_tick(cpu_ns, pages as u64);
        tick
    }

    /// What the thread does: ticks until nothing is left to do, or until it is ordered to end.
    fn run(&self) {
        let mut quiet = 0;
        let mut locked = false;
        let mut watch = Watch::new();
        // Pages are returned at the second tick, T after the first. So the first can come early.
        let mut wait_ms = self.interval_ms() / 2;
        self.pause.end();
        let mut rhythm = Rhythm::new();
        loop {
            if !self.sleep(wait_ms, &mut rhythm, &mut watch) {
                return self.set_wanted(START, true);
            }
            // Not before the first sleep: the kernel takes up to 10 ms for it, and the end of a short program would wait.
            HEAP.os.prepare_membarrier();
            let freed_bytes = HEAP.freed_bytes();
            let before = HEAP.os.thread_cpu_ns();
            if HEAP.is_near_limit() && watch.may_open() {
                HEAP.refresh_pressure();
            }
            let tick = self.measured_tick(None);
            HEAP.set_pressed(false);
            watch.ticked();
            lease::look(None);
            self.thread.ask_for_look();
            let cpu_ns = HEAP.os.thread_cpu_ns() - before;
            let resident_bytes = publish::after_tick(cpu_ns, self.standing());
            let ticked = Ticked { freed_bytes, returned_bytes: tick.returned_bytes, resident_bytes, cpu_ns };
            let interval_ms = self.interval_ms();
            let most_ms = self.schedule.most_interval_ms();
            wait_ms = rhythm.wait_ms(&ticked, interval_ms, most_ms, &self.pause);
            // Locked memory is tried again and again, but is no reason to stay.
            locked = tick.returned_bytes == 0 && (locked || tick.refused_bytes > 0);
            let works = tick.returned_bytes > 0 || tick.drained_bytes > 0 || HEAP.freed_bytes() > 0;
            if works || tick.more && !locked {
                quiet = 0;
                continue;
            }
            quiet += 1;
            self.pause.end();
            wait_ms = self.interval_ms();
            let most_quiet = match tick.cached_bytes {
                0 => QUIET_TICKS,
                _ => QUIET_TICKS_CACHED,
            };
            if quiet >= most_quiet {
                return;
            }
        }
    }

    /// In the thread: sleeps for `wait_ms`. If a burst ends the pause, it sleeps half an interval from then. It goes on
    /// sleeping after a wake-up without a reason. False as soon as the thread has to end.
    fn sleep(&self, wait_ms: u64, rhythm: &mut Rhythm, watch: &mut Watch) -> bool {
        let mut until = HEAP.os.now_ms() + wait_ms;
        loop {
            let now = HEAP.os.now_ms();
            match self.thread.order() {
                Order::End => return false,
                Order::Hasten => {
                    rhythm.disturbed();
                    until = until.min(now + self.interval_ms() / 2);
                }
                Order::Nothing if now >= until => break,
                Order::Nothing => {
                    self.thread.sleep(watch.sleep_ms(until - now));
                    if watch.is_pressed() {
                        HEAP.set_pressed(true);
                        break;
                    }
                }
            }
        }
        self.pause.end();
        true
    }

    /// In a child: there is no thread here, whatever the parent had.
    pub(crate) fn forget(&self) {
        self.thread.forget();
        self.set_wanted(START, false);
    }
}

unsafe extern "C" fn run_purger(_: *mut u8) {
    PURGER.run();
}
