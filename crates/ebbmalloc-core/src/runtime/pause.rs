//! Pauses of the purger: where ticks return little, and would take a large share of the little CPU that
//! the process uses, the next ones come later; a burst ends the pause. Used by the purger's thread, and by
//! slow operations, which see the burst.
//!
//! How long a pause is says `arena::delay`. The thread's word (`purger::STOP`) is not known here.

use super::instance::HEAP;
use super::purger::START_BYTES;
use crate::arena::delay;
use crate::base::exact::usize_of;
use crate::heap::tick::Tick;
use crate::os::Os;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Ticks running that returned little before the first pause: by then a burst's remains have gone.
const SMALL_TICKS: u32 = 3;
/// Not in a pause.
const NEVER: usize = usize::MAX;

/// Bytes freed since the last tick at which the pause is over: [`delay::freed_mark`]. Written by the purger, taken off by whoever ends the pause. Nothing else is read because of it.
static FREED_MARK: AtomicUsize = AtomicUsize::new(NEVER);

/// What the purger's thread knows of its last ticks.
pub(super) struct Rhythm {
    small: u32,
    ended_ms: u64,
    process_ns: u64,
}

impl Rhythm {
    /// Of a thread that begins.
    pub(super) fn new() -> Self {
        end();
        Self {
            small: 0,
            ended_ms: HEAP.os.now_ms(),
            process_ns: HEAP.os.process_cpu_ns(),
        }
    }

    /// A pause was ended by a burst.
    pub(super) fn disturbed(&mut self) {
        self.small = 0;
    }

    /// How long to wait after a tick, `interval_ms` or a pause of `most_ms` at most. Before the tick
    /// `freed_bytes` had been freed; it has taken `cpu_ns`, and `resident_bytes` are left.
    pub(super) fn wait_ms(
        &mut self,
        tick: &Tick,
        freed_bytes: usize,
        cpu_ns: u64,
        resident_bytes: usize,
        interval_ms: u64,
        most_ms: u64,
    ) -> u64 {
        let (now_ms, process_ns) = (HEAP.os.now_ms(), HEAP.os.process_cpu_ns());
        let elapsed_ms = now_ms.saturating_sub(self.ended_ms);
        let others_ns = process_ns.saturating_sub(self.process_ns + cpu_ns);
        (self.ended_ms, self.process_ns) = (now_ms, process_ns);
        self.small = if tick.returned_bytes < START_BYTES {
            self.small.saturating_add(1)
        } else {
            0
        };
        if self.small < SMALL_TICKS || HEAP.is_near_limit() {
            return interval_ms;
        }
        let pages = (tick.returned_bytes / HEAP.os.page_bytes()) as u64;
        let cost_ns = cpu_ns + pages * delay::FAULT_NS;
        let pause_ms = delay::pause_ms(interval_ms, elapsed_ms, cost_ns, others_ns).min(most_ms);
        if pause_ms > interval_ms {
            let (freed, resident) = (freed_bytes as u64, resident_bytes as u64);
            let least = START_BYTES as u64;
            let mark = delay::freed_mark(freed, elapsed_ms, pause_ms, resident, least);
            FREED_MARK.store(usize_of(mark), Ordering::Relaxed);
        }
        pause_ms.max(interval_ms)
    }
}

/// The purger is awake, or gone: there is no pause to end.
pub(super) fn end() {
    FREED_MARK.store(NEVER, Ordering::Relaxed);
}

/// A slow operation asks whether it should end the pause: the heap has `grown` by a step, or far
/// more was freed than usual. True for one of those who ask.
pub(super) fn is_over(grown: bool) -> bool {
    let mark = FREED_MARK.load(Ordering::Relaxed);
    mark != NEVER
        && (grown || HEAP.freed_bytes() >= mark)
        && FREED_MARK.swap(NEVER, Ordering::Relaxed) != NEVER
}
