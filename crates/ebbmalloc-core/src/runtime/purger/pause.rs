//! Pauses: where ticks return little, and would take a large share of the little CPU that the process uses, the next
//! ones come later; a burst ends the pause. How long a pause is says `arena::delay`.

use super::super::instance::HEAP;
use crate::arena::delay;
use crate::base::exact::usize_of;
use crate::os::Os;
use core::sync::atomic::{AtomicUsize, Ordering};

pub(super) use super::super::profile::lease::START_BYTES;
/// Ticks running that returned little before the first pause: by then a burst's remains have gone.
const SMALL_TICKS: u32 = 3;
/// Not in a pause.
const NEVER: usize = usize::MAX;

/// The pause that the purger's thread makes, as slow operations see it.
pub(crate) struct Pause {
    /// Bytes freed since the last tick at which the pause is over: [`delay::freed_mark`]. Written by the purger, taken
    /// off by the thread that ends the pause. Nothing else is read because of it: relaxed.
    freed_mark: AtomicUsize,
}

impl Pause {
    pub(super) const fn new() -> Self {
        Self { freed_mark: AtomicUsize::new(NEVER) }
    }

    /// The thread is awake, or gone: there is no pause to end.
    pub(super) fn end(&self) {
        self.freed_mark.store(NEVER, Ordering::Relaxed);
    }

    /// Ends the pause if the heap has `grown` by a step, or far more was freed than usual. True for the one caller who
    /// ended it.
    pub(super) fn end_after_burst(&self, grown: bool) -> bool {
        let mark = self.freed_mark.load(Ordering::Relaxed);
        mark != NEVER
            && (grown || HEAP.freed_bytes() >= mark)
            && self.freed_mark.swap(NEVER, Ordering::Relaxed) != NEVER
    }
}

/// A tick that is over.
pub(super) struct Ticked {
    pub(super) freed_bytes: usize,
    pub(super) returned_bytes: usize,
    pub(super) resident_bytes: usize,
    /// What it took.
    pub(super) cpu_ns: u64,
}

/// What the purger's thread knows of its last ticks.
pub(super) struct Rhythm {
    small: u32,
    ended_ms: u64,
    process_ns: u64,
}

impl Rhythm {
    /// Of a thread that begins.
    pub(super) fn new() -> Self {
        Self { small: 0, ended_ms: HEAP.os.now_ms(), process_ns: HEAP.os.process_cpu_ns() }
    }

    /// A pause was ended by a burst.
    pub(super) fn disturbed(&mut self) {
        self.small = 0;
    }

    /// How long to wait after a tick, `interval_ms`, or a pause of `most_ms` at most, which begins.
    pub(super) fn wait_ms(&mut self, tick: &Ticked, interval_ms: u64, most_ms: u64, pause: &Pause) -> u64 {
        let (now_ms, process_ns) = (HEAP.os.now_ms(), HEAP.os.process_cpu_ns());
        let elapsed_ms = now_ms.saturating_sub(self.ended_ms);
        let others_ns = process_ns.saturating_sub(self.process_ns + tick.cpu_ns);
        (self.ended_ms, self.process_ns) = (now_ms, process_ns);
        self.small = if tick.returned_bytes < START_BYTES { self.small.saturating_add(1) } else { 0 };
        if self.small < SMALL_TICKS || HEAP.is_near_limit() {
            return interval_ms;
        }
        let pages = (tick.returned_bytes / HEAP.os.page_bytes()) as u64;
        let cost_ns = tick.cpu_ns + pages * delay::FAULT_NS;
        let pause_ms = delay::pause_ms(interval_ms, elapsed_ms, cost_ns, others_ns).min(most_ms);
        if pause_ms > interval_ms {
            let (freed, resident) = (tick.freed_bytes as u64, tick.resident_bytes as u64);
            let least = START_BYTES as u64;
            let mark = delay::freed_mark(freed, elapsed_ms, pause_ms, resident, least);
            pause.freed_mark.store(usize_of(mark), Ordering::Relaxed);
        }
        pause_ms.max(interval_ms)
    }
}
