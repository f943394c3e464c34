//! The time between ticks: T, which `arena::delay` derives from the measured cost of returning pages and the price of
//! memory, and the settings that bound it.

use crate::arena::delay::{self, Cost};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The shortest time between ticks that a setting can ask for.
const LEAST_INTERVAL_MS: u64 = 10;

/// See the module. Each field is a value of its own: relaxed, seen at the next tick or slow operation.
pub(crate) struct Schedule {
    /// Only trims return memory.
    off: AtomicBool,
    /// Settings: so many bytes cost as much as one processor. Written at boot only.
    bytes_per_core: AtomicU64,
    /// The longest time between ticks, in milliseconds, by decay times.
    most_interval_ms: AtomicU64,
    /// The cost of returning pages so far: the fields of a [`Cost`]. Written by the thread that ticks, one at a time
    /// but for a race of two slow paths, which loses a sample.
    cost_cpu_ns: AtomicU64,
    cost_pages: AtomicU64,
}

impl Schedule {
    /// Without a bound, and the costs as measured elsewhere.
    pub(crate) const fn new() -> Self {
        Self {
            off: AtomicBool::new(false),
            bytes_per_core: AtomicU64::new(delay::BYTES_PER_CORE),
            most_interval_ms: AtomicU64::new(u64::MAX),
            cost_cpu_ns: AtomicU64::new(Cost::PRIOR.cpu_ns),
            cost_pages: AtomicU64::new(Cost::PRIOR.pages),
        }
    }

    /// Whether purging is on.
    pub(crate) fn is_on(&self) -> bool {
        !self.off.load(Ordering::Relaxed)
    }

    /// Memory stays idle for at most `bound` milliseconds, which are two ticks. With `off` only trims return memory.
    pub(super) fn set_bound(&self, bound: Option<u64>, off: bool) {
        let most = bound.map_or(u64::MAX, |bound| (bound / 2).max(LEAST_INTERVAL_MS));
        self.most_interval_ms.store(most, Ordering::Relaxed);
        self.off.store(off, Ordering::Relaxed);
    }

    /// Settings: so many bytes of memory are worth one processor.
    pub(crate) fn set_memory_price(&self, bytes_per_core: u64) {
        self.bytes_per_core.store(bytes_per_core, Ordering::Relaxed);
    }

    pub(crate) fn memory_price(&self) -> u64 {
        self.bytes_per_core.load(Ordering::Relaxed)
    }

    /// Time between ticks, in milliseconds: T, or what a setting bounds it to.
    pub(super) fn interval_ms(&self, page_bytes: usize) -> u64 {
        let per_page_ns = self.cost().per_page_ns();
        delay::break_even_ms(per_page_ns, page_bytes, self.memory_price()).min(self.most_interval_ms())
    }

    /// The longest time between ticks that the settings allow, in milliseconds.
    pub(super) fn most_interval_ms(&self) -> u64 {
        self.most_interval_ms.load(Ordering::Relaxed)
    }

    /// A tick that took `cpu_ns` returned so many pages.
    pub(super) fn note_tick(&self, cpu_ns: u64, pages: u64) {
        let cost = self.cost().after_tick(cpu_ns, pages);
        self.cost_cpu_ns.store(cost.cpu_ns, Ordering::Relaxed);
        self.cost_pages.store(cost.pages, Ordering::Relaxed);
    }

    fn cost(&self) -> Cost {
        Cost { cpu_ns: self.cost_cpu_ns.load(Ordering::Relaxed), pages: self.cost_pages.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES: usize = 4096;

    #[test]
    fn a_bound_is_two_ticks_and_no_tick_is_shorter_than_ten_milliseconds() {
        let schedule = Schedule::new();
        let own = schedule.interval_ms(PAGE_BYTES);
        assert!((delay::LEAST_MS..=delay::MOST_MS).contains(&own));
        for (bound, interval) in [(Some(200), 100), (Some(5), 10), (Some(1 << 40), own), (None, own)] {
            schedule.set_bound(bound, false);
            assert_eq!(schedule.interval_ms(PAGE_BYTES), interval, "{bound:?}");
        }
        schedule.set_bound(None, true);
        assert!(!schedule.is_on());
    }

    #[test]
    fn ticks_that_return_little_for_much_make_the_interval_longer() {
        let schedule = Schedule::new();
        let before = schedule.interval_ms(PAGE_BYTES);
        for _ in 0..20 {
            schedule.note_tick(1_000_000, 100);
        }
        assert!(schedule.interval_ms(PAGE_BYTES) > before);
        schedule.set_memory_price(1);
        assert_eq!(schedule.interval_ms(PAGE_BYTES), delay::LEAST_MS);
    }
}
