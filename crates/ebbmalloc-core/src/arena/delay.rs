//! How long idle pages stay: arithmetic alone. No clock, no lock, no kernel here; the purger measures,
//! asks and waits.
//!
//! Returning a page costs the purger's CPU time, and a fault if the page is needed again. Keeping it costs memory.
//! T is the time after which keeping a page has cost as much as returning it. Returning it then costs at most twice what
//! it would have cost with knowledge of the future (the ski-rental rule). The purger ticks every T and returns pages that were idle
//! at two ticks in a row, that is for T to 2 T, so here the factor is three.
#![forbid(unsafe_code)]

/// Bytes of memory that are worth one processor, unless a setting says otherwise: the ratio of small
/// containers.
pub const BYTES_PER_CORE: u64 = 2 << 30;
/// What a fault of a page that was returned costs, in nanoseconds of CPU: the median of what was
/// measured on a virtual machine of 2 cores, 1.03 to 1.47 microseconds (docs/decisions/0013).
pub const FAULT_NS: u64 = 1100;
/// T is never shorter, even if memory is expensive: pages that a server needs several times per second stay.
pub const LEAST_MS: u64 = 250;
/// T is never longer, even if memory is cheap: two T and the work of a tick stay within the two seconds that the
/// documentation promises.
pub const MOST_MS: u64 = 900;

/// What returning has cost so far. The sums lose a quarter at each tick, so recent ticks weigh more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Nanoseconds of CPU.
    pub cpu_ns: u64,
    /// Pages returned.
    pub pages: u64,
}

impl Cost {
    /// Before the first tick: 16 MiB in runs of 16 pages each, as measured next to [`FAULT_NS`].
    pub const PRIOR: Self = Self { cpu_ns: 4096 * 300, pages: 4096 };

    /// The sums after one more tick. A tick that returned nothing counts too: its CPU time is part of the price.
    pub const fn after_tick(self, cpu_ns: u64, pages: u64) -> Self {
        Self { cpu_ns: (self.cpu_ns / 4 * 3).saturating_add(cpu_ns), pages: (self.pages / 4 * 3).saturating_add(pages) }
    }

    /// Nanoseconds of CPU that returning a page and faulting it in again cost.
    pub const fn per_page_ns(self) -> u64 {
        let pages = if self.pages == 0 { 1 } else { self.pages };
        (self.cpu_ns / pages).saturating_add(FAULT_NS)
    }
}

/// T in milliseconds, where a page of `page_bytes` costs `per_page_ns` to return and fault in again and
/// `bytes_per_core` of memory are worth one processor.
#[expect(clippy::cast_possible_truncation, reason = "no longer than a bound of 64 bits, as compared just above")]
pub const fn break_even_ms(per_page_ns: u64, page_bytes: usize, bytes_per_core: u64) -> u64 {
    let page_bytes = if page_bytes == 0 { 1 } else { page_bytes };
    let ns = per_page_ns as u128 * bytes_per_core as u128 / page_bytes as u128;
    let ms = ns / 1_000_000;
    if ms < LEAST_MS as u128 {
        LEAST_MS
    } else if ms > MOST_MS as u128 {
        MOST_MS
    } else {
        ms as u64
    }
}

/// Returning little costs at most one part in so many of the CPU that the process uses: half a percent, so that with
/// what a pause cannot foresee it stays below one.
pub const SHARE: u64 = 200;
/// A pause is at most so many T.
pub const MOST_PAUSE: u64 = 16;

/// Time to the next tick after one that returned little: T, or longer if ticks of `cost_ns`, like the last,
/// would take more than their share. In the last `elapsed_ms` the process has used `process_ns` otherwise.
#[expect(clippy::cast_possible_truncation, reason = "no longer than a bound of 64 bits, as compared just above")]
pub const fn pause_ms(interval_ms: u64, elapsed_ms: u64, cost_ns: u64, process_ns: u64) -> u64 {
    let process_ns = if process_ns == 0 { 1 } else { process_ns };
    let ms = (cost_ns as u128 * SHARE as u128).saturating_mul(elapsed_ms as u128) / process_ns as u128;
    let most_ms = interval_ms.saturating_mul(MOST_PAUSE);
    if ms < interval_ms as u128 {
        interval_ms
    } else if ms > most_ms as u128 {
        most_ms
    } else {
        ms as u64
    }
}

/// A pause is over after so much was freed in any case.
const MOST_FREED: u64 = 64 << 20;

/// Bytes freed since the last tick at which a pause of `pause_ms` is over: twice what is usual in such a time by the
/// `freed` bytes of the last `elapsed_ms`, and `least` more. An eighth of the `resident` bytes ends it in any case, or
/// `MOST_FREED` in a small heap: a program that frees much and takes it again at once may free all it has
/// without a sign of it in what is usual.
pub const fn freed_mark(freed: u64, elapsed_ms: u64, pause_ms: u64, resident: u64, least: u64) -> u64 {
    let elapsed_ms = if elapsed_ms == 0 { 1 } else { elapsed_ms };
    let usual = freed.saturating_mul(pause_ms) / elapsed_ms;
    let unusual = usual.saturating_mul(2).saturating_add(least);
    let most = if resident / 8 > MOST_FREED { resident / 8 } else { MOST_FREED };
    if unusual < most { unusual } else { most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_break_even_is_where_keeping_has_cost_as_much_as_returning() {
        // 1.2 microseconds a page; a page is 1/524288 of a core: 0.63 seconds.
        assert_eq!(break_even_ms(1200, 4096, 2 * GIB), 629);
        assert_eq!(break_even_ms(1200, 4096, GIB), 314);
        assert_eq!(break_even_ms(600, 4096, 2 * GIB), 314);
        assert_eq!(break_even_ms(4800, 16384, 2 * GIB), 629);
    }

    #[test]
    fn the_break_even_has_bounds_and_no_overflow() {
        assert_eq!(break_even_ms(1200, 4096, 1), LEAST_MS);
        assert_eq!(break_even_ms(0, 65536, 2 * GIB), LEAST_MS);
        assert_eq!(break_even_ms(5000, 4096, 2 * GIB), MOST_MS);
        assert_eq!(break_even_ms(u64::MAX, 1, u64::MAX), MOST_MS);
        assert_eq!(break_even_ms(1, 0, 1), LEAST_MS);
    }

    #[test]
    fn without_a_setting_nothing_measured_leaves_the_promise() {
        assert_eq!(Cost::PRIOR.per_page_ns(), 1400);
        let start = break_even_ms(Cost::PRIOR.per_page_ns(), 4096, BYTES_PER_CORE);
        assert!((500..=MOST_MS).contains(&start), "{start}");
        const { assert!(2 * MOST_MS < 2000) };
    }

    #[test]
    fn the_cost_follows_what_ticks_cost_now() {
        let mut cost = Cost::PRIOR;
        for _ in 0..40 {
            cost = cost.after_tick(1_000_000, 10_000);
        }
        assert_eq!(cost.per_page_ns(), FAULT_NS + 100);
        // Ten times as dear from now on: half of the way is made in three ticks.
        let dearer: Vec<_> = (0..20)
            .map(|_| {
                cost = cost.after_tick(10_000_000, 10_000);
                cost.per_page_ns() - FAULT_NS
            })
            .collect();
        assert!(dearer.is_sorted());
        assert!(dearer[2] > 550 && dearer[0] < 550, "{dearer:?}");
        assert!((990..=1000).contains(&dearer[19]), "{dearer:?}");
    }

    #[test]
    fn a_pause_keeps_small_ticks_to_their_share() {
        // 50 microseconds every second, of a process that uses 10 ms a second: exactly the share.
        assert_eq!(pause_ms(900, 1000, 50_000, 10_000_000), 1000);
        assert_eq!(pause_ms(900, 3000, 50_000, 30_000_000), 1000);
        assert_eq!(pause_ms(900, 1000, 50_000, 5_000_000), 2000);
        assert_eq!(pause_ms(900, 1000, 100_000, 1_000_000_000), 900);
        assert_eq!(pause_ms(900, 1000, 100_000, 0), 14400);
        assert_eq!(pause_ms(10, u64::MAX, u64::MAX, 1), 160);
        assert_eq!(pause_ms(u64::MAX, 1, 1, 1), u64::MAX);
    }

    #[test]
    fn a_pause_ends_when_far_more_is_freed_than_usual_or_a_share_of_the_heap() {
        const MIB: u64 = 1 << 20;
        assert_eq!(freed_mark(0, 700, 11_200, 300 * MIB, 2 * MIB), 2 * MIB);
        assert_eq!(freed_mark(MIB, 700, 7000, 300 * MIB, 2 * MIB), 22 * MIB);
        // 56 MiB a tick that are taken again at once, and then all the rest is freed.
        assert_eq!(freed_mark(56 * MIB, 700, 11_200, 1024 * MIB, 2 * MIB), 128 * MIB);
        assert_eq!(freed_mark(56 * MIB, 700, 11_200, 288 * MIB, 2 * MIB), 64 * MIB);
        assert_eq!(freed_mark(u64::MAX, 0, u64::MAX, u64::MAX, u64::MAX), u64::MAX / 8);
    }

    #[test]
    fn ticks_for_nothing_make_returning_dear_and_never_divide_by_nothing() {
        let mut cost = Cost::PRIOR;
        for _ in 0..100 {
            cost = cost.after_tick(30_000, 0);
        }
        assert_eq!(cost.pages, 0);
        assert!(cost.per_page_ns() > 100_000);
        let full = Cost { cpu_ns: u64::MAX, pages: u64::MAX };
        assert_eq!(full.after_tick(u64::MAX, u64::MAX).cpu_ns, u64::MAX);
    }
}
