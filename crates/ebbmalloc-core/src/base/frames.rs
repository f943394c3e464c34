//! Frames of 2 MiB, aligned to their size: where a huge page may be. A map has a bit for each frame of one region of address
//! space. The arena sets bits where it asks for huge pages (`arena/huge_pages.rs`). Memory is returned to the kernel through this
//! file, which first splits a huge page if only a part of it is returned: otherwise the whole page would stay charged.
//!
//! All fields are hints, relaxed. A bit is set by the owner of all memory of its frame, or under the arena's lock, and cleared
//! by a thread that took memory of the frame out of every list, under a lock that the owner gave it back under.

use crate::os::{Discarded, Os, PageRun};
use core::sync::atomic::{AtomicBool, AtomicI8, AtomicU64, AtomicUsize, Ordering};

/// Bytes of a huge page with pages of 4 KiB; with larger pages, where it is larger, none is asked for.
pub const HUGE_PAGE: usize = 2 << 20;
/// What is reserved is a multiple of this.
const UNIT: usize = 64 << 10;
/// Bits for 1 TiB, and for the frames that a region's ends cut.
const MAP_BYTES: usize = (1 << 40) / HUGE_PAGE / 8 + UNIT;

/// See the module.
pub struct Frames {
    /// Address of the map, 0 until there is need for it.
    map: AtomicUsize,
    /// Address of the region's first byte, from when there is a map.
    base: AtomicUsize,
    /// The program has asked for huge pages in some block.
    pub wished: AtomicBool,
    /// Little memory is left: nothing is asked for.
    pub scarce: AtomicBool,
    /// Live blocks that ask.
    pub asking: AtomicUsize,
    /// Large blocks that could have had a guard.
    pub guardable: AtomicUsize,
    /// By the logarithm of their size: whether blocks that ended were filled.
    pub filled: [AtomicI8; 20],
}

impl Frames {
    #[allow(clippy::declare_interior_mutable_const)] // Each use is a fresh copy, as wanted.
    /// No huge page, and nothing known.
    pub const NONE: Self = Self {
        map: AtomicUsize::new(0),
        base: AtomicUsize::new(0),
        wished: AtomicBool::new(false),
        scarce: AtomicBool::new(false),
        asking: AtomicUsize::new(0),
        guardable: AtomicUsize::new(0),
        filled: [const { AtomicI8::new(0) }; 20],
    };

    /// Notes that huge pages may be in the frames that the range touches; its region begins at `base`, the same for all
    /// ranges. False if that cannot be noted.
    pub fn mark<O: Os>(&self, os: &O, base: usize, start: usize, end: usize) -> bool {
        if self.map.load(Ordering::Relaxed) == 0 && !self.make_map(os, base) {
            return false;
        }
        frames(start, end).all(|frame| {
            let found = self.bit(frame);
            found.inspect(|(word, bit)| _ = word.fetch_or(*bit, Ordering::Relaxed)).is_some()
        })
    }

    /// Whether a huge page may be in the range.
    pub fn may_be_huge(&self, start: usize, end: usize) -> bool {
        frames(start, end)
            .any(|frame| self.bit(frame).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0))
    }

    /// [`Os::discard`]. Huge pages that a run cuts are split first; none is left where it was.
    ///
    /// # Safety
    /// As there. What is in the region lies below `top`.
    pub unsafe fn discard<O: Os>(&self, os: &O, runs: &[PageRun], top: usize) -> Discarded {
        if self.map.load(Ordering::Relaxed) != 0 {
            for run in runs {
                self.leave(os, run, top);
            }
        }
        // SAFETY: the contract is passed on.
        unsafe { os.discard(runs) }
    }

    /// Splits the huge pages that a run cuts, and forgets the others. The last frame that slabs got may still ask: the
    /// kernel would fill it again.
    fn leave<O: Os>(&self, os: &O, run: &PageRun, top: usize) {
        let end = run.start + run.bytes;
        let mut settled = false;
        for frame in frames(run.start, end) {
            let marked = self.bit(frame).is_some_and(|(word, bit)| {
                word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
            });
            if !marked {
                continue;
            }
            if !settled {
                let first = frame.max(self.base.load(Ordering::Relaxed));
                os.settle_huge_pages(first, end.next_multiple_of(HUGE_PAGE).min(top) - first);
                settled = true;
            }
            if frame < run.start || end < frame + HUGE_PAGE {
                os.split_huge_page(frame.max(run.start));
            }
        }
    }

    /// The word and the bit of the frame at `address`, if there is a map and it has one.
    fn bit(&self, address: usize) -> Option<(&AtomicU64, u64)> {
        let map = self.map.load(Ordering::Acquire) as *const AtomicU64;
        let base = self.base.load(Ordering::Relaxed);
        let index = (address / HUGE_PAGE).wrapping_sub(base / HUGE_PAGE);
        if map.is_null() || index >= MAP_BYTES * 8 {
            return None;
        }
        // SAFETY: the map has so many bits, and stays for ever.
        Some((unsafe { &*map.wrapping_add(index / 64) }, 1 << (index % 64)))
    }

    #[cold]
    fn make_map<O: Os>(&self, os: &O, base: usize) -> bool {
        let Ok(map) = os.reserve(MAP_BYTES, UNIT) else {
            return false;
        };
        let map = map.as_ptr() as usize;
        os.settle_huge_metadata(map, MAP_BYTES);
        // Every thread writes the same.
        self.base.store(base, Ordering::Relaxed);
        // Release pairs with the acquire in `bit`: the base is there.
        let (order, failed) = (Ordering::Release, Ordering::Relaxed);
        // SAFETY: reserved just above.
        let made =
            unsafe { os.commit(map, MAP_BYTES) }.is_ok() && self.map.compare_exchange(0, map, order, failed).is_ok();
        if !made {
            // SAFETY: no other thread knows it.
            unsafe { os.release(map, MAP_BYTES) };
        }
        self.map.load(Ordering::Relaxed) != 0
    }
}

fn frames(start: usize, end: usize) -> impl Iterator<Item = usize> {
    (start / HUGE_PAGE..end.div_ceil(HUGE_PAGE)).map(|frame| frame * HUGE_PAGE)
}
