//! How long locks are held, one hold after the other, where the feature `holds` is on. `benches/holds.py` is its only
//! user; without the feature nothing here costs anything.

#[cfg(not(feature = "holds"))]
mod off {
    use crate::base::rank::KeptRank;

    /// A hold of a lock whose time is not measured.
    pub struct Held;

    impl Held {
        #[inline(always)]
        pub(in crate::base) fn begin() -> Self {
            Self
        }

        #[inline(always)]
        pub(in crate::base) fn end(&self, _: KeptRank) {}
    }
}

#[cfg(feature = "holds")]
mod on {
    use crate::base::rank::Rank;
    use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

    /// Ranks of locks that there are.
    pub const RANKS: usize = Rank::Metadata as usize + 1;
    /// Holds of a rank that are kept.
    pub const MOST: usize = 2_000_000;

    /// Holds of each rank so far.
    static COUNT: [AtomicUsize; RANKS] = [const { AtomicUsize::new(0) }; RANKS];
    /// How long each was, in ticks of the processor's counter.
    static TICKS: [[AtomicU32; MOST]; RANKS] = [const { [const { AtomicU32::new(0) }; MOST] }; RANKS];

    /// A hold of a lock under way.
    pub struct Held {
        since: u64,
    }

    impl Held {
        #[inline(always)]
        pub(in crate::base) fn begin() -> Self {
            Self { since: now() }
        }

        #[inline(always)]
        pub(in crate::base) fn end(&self, rank: Rank) {
            let ticks = now() - self.since;
            // Relaxed, here and below: one thread is measured, and reads its own.
            let index = COUNT[rank as usize].fetch_add(1, Ordering::Relaxed);
            if let Some(place) = TICKS[rank as usize].get(index) {
                let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
                place.store(ticks, Ordering::Relaxed);
            }
        }
    }

    /// The processor's counter: one instruction, where the thread's CPU clock is a system call that would be most of a
    /// short hold. It runs on while the thread does not.
    #[inline(always)]
    pub fn now() -> u64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has it, and Linux allows it.
        unsafe {
            core::arch::x86_64::_rdtsc()
        }
        #[cfg(target_arch = "aarch64")]
        {
            let ticks: u64;
            // SAFETY: Linux lets programs read the counter, which changes nothing.
            unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks) };
            ticks
        }
    }

    /// Touches the memory in which holds are kept, so that no hold has a page fault of it.
    pub fn prepare() {
        for places in &TICKS {
            places.iter().for_each(|place| place.store(0, Ordering::Relaxed));
        }
    }

    /// How long each hold of the `rank`th lock was, in order; `None` if there were more than are kept.
    pub fn ticks(rank: usize) -> Option<impl Iterator<Item = u32>> {
        let count = COUNT[rank].load(Ordering::Relaxed);
        let places = TICKS[rank].get(..count)?;
        Some(places.iter().map(|place| place.load(Ordering::Relaxed)))
    }
}

#[cfg(not(feature = "holds"))]
pub use off::Held;
#[cfg(feature = "holds")]
pub use on::*;
