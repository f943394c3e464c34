//! The pages of a slab by what their slots are; and for statistics how many resident pages of a bin's slabs hold nothing
//! live or cached: what a purge returns, without the free slots next to live ones. Nothing is counted while slots come and go.
//!
//! A slab with such a page is on the list that the sweep visits, or on the rest of that list during a sweep: slots came
//! back since the sweep visited it, or the sweep has listed it again. So only these slabs are counted. The lock is
//! released now and then. Meanwhile `counting` points to a slab of the list: if that slab leaves the list, `unlist` moves
//! it to the next. Slabs that are listed meanwhile are missed: they became free after the count began, or a sweep
//! overtook the count.

use super::bin::Bin;
use super::shape::{Shape, mask};
use super::slab::Slab;
use crate::base::exact::u32_of;
use crate::os::Os;
use core::ptr::null_mut;

/// Slabs looked at with the lock held once, as many as in a sweep.
const SLABS: usize = if cfg!(test) { 2 } else { 32 };

impl Bin {
    /// See the module. One count at a time: another one would take the cursor.
    pub fn free_pages<O: Os>(&self, os: &O, class: usize) -> usize {
        let shape = Shape::new(class, os.page_bytes().trailing_zeros());
        let mut pages = 0;
        let mut slabs = self.slabs.lock(os);
        let mut looked_at = 0;
        // A sweep under way has taken the list, and what it has put on it again is on the new one. One that begins
        // later takes what is counted here already.
        let is_swept = !slabs.sweeping.is_null();
        for of_sweep in [false, true] {
            slabs.counting = match of_sweep {
                false => slabs.visit,
                true if is_swept => slabs.sweeping,
                true => null_mut(),
            };
            while !slabs.counting.is_null() {
                if looked_at == SLABS {
                    drop(slabs);
                    slabs = self.slabs.lock(os);
                    looked_at = 0;
                    continue;
                }
                looked_at += 1;
                // SAFETY: the lock is held, and the cursor is on a slab of this bin's list.
                unsafe {
                    let slab = Slab(slabs.counting);
                    slabs.counting = (*slab.0).next;
                    // Leaving pages are resident until the kernel has them.
                    let leaving = (*slab.0).leaving;
                    let free = slab.free_pages(shape, (*slab.0).resident & !leaving) | leaving;
                    pages += free.count_ones() as usize;
                }
            }
            slabs.counting = null_mut();
        }
        pages
    }
}

impl Slab {
    /// After slots came back that no thread has used since the last tick: marks their pages as free since then, if nothing
    /// else touched them.
    ///
    /// # Safety
    /// The bin's lock is held, and [`Slab::put`] took the slots.
    pub unsafe fn put_idle(self, shape: Shape, tick: u32, slots: &[*mut u8]) {
        // SAFETY: the lock is held.
        unsafe {
            let (shape, base) = (self.shape(shape), (*self.0).base);
            let slot_of = |address: usize| shape.class.slot_of(address - base);
            let pages = slots.iter().fold(0, |pages, &address| pages | shape.pages_of_slot(slot_of(address as usize)));
            let pages = pages & !self.touched_since(tick);
            (*self.0).seen |= self.free_pages(shape, pages);
        }
    }

    /// The pages on which no slot is live or cached, among `pages`.
    ///
    /// # Safety
    /// The bin's lock is held.
    pub unsafe fn free_pages(self, shape: Shape, mut pages: u64) -> u64 {
        // SAFETY: the lock is held.
        let (shape, bitmap) = unsafe { (self.shape(shape), self.bitmap(shape)) };
        let mut free = 0;
        while pages != 0 {
            let page = pages.trailing_zeros();
            pages &= pages - 1;
            let (first, end) = shape.slots_on_page(page);
            if all_set(bitmap, first, end) {
                free |= 1 << page;
            }
        }
        free
    }

    /// Removes the slots on `pages`, which are all free, from the bitmap, or adds them again.
    ///
    /// # Safety
    /// The bin's lock is held; when putting back, the slots were taken out with the same `pages`.
    pub unsafe fn set_slots_on_pages(self, shape: Shape, pages: u64, free: bool) {
        // SAFETY: the lock is held.
        let (shape, bitmap) = unsafe { (self.shape(shape), self.bitmap(shape)) };
        let mut changed = 0;
        let mut rest = pages;
        while rest != 0 {
            let page = rest.trailing_zeros();
            let count = (rest >> page).trailing_ones();
            rest &= !mask(page, count);
            let (first, end) = shape.slots_on_pages(page, count);
            let words = first / 64..end.div_ceil(64);
            let Some(bitmap) = bitmap.get_mut(words.clone()) else {
                continue;
            };
            for (index, word) in words.zip(bitmap) {
                let from = first.max(index * 64);
                let slots = mask(u32_of(from % 64), u32_of((end - from).min(64)));
                let now = if free { *word | slots } else { *word & !slots };
                changed += (*word ^ now).count_ones();
                *word = now;
            }
        }
        if cfg!(ebb_mutation = "leaving_count") {
            return;
        }
        // SAFETY: the lock is held.
        unsafe {
            if free {
                (*self.0).free += changed;
            } else {
                (*self.0).free -= changed;
            }
        }
    }
}

pub(super) fn all_set(bitmap: &[u64], first: usize, end: usize) -> bool {
    let mut at = first;
    while at < end {
        let bits = u32_of((64 - at % 64).min(end - at));
        let want = mask(u32_of(at % 64), bits);
        match bitmap.get(at / 64) {
            Some(word) if word & want == want => at += bits as usize,
            _ => return false,
        }
    }
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::base::lock::Wait;
    use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::arena::Arena;
    use crate::arena::granule::Granule;
    use crate::base::metadata::Metadata;
    use crate::os::fake::Fake;
    use crate::size::{CLASS, class_of};
    use crate::slab::bin::{Age, Returned, Supply};
    use crate::slab::sweep::Sweep;

    struct Ground {
        os: &'static Fake,
        arena: &'static Arena,
        metadata: &'static Metadata,
        bin: &'static Bin,
        class: usize,
        tick: u32,
        /// Live slots with their slabs, and all slabs that there have been.
        live: Vec<(*mut u8, *mut Granule)>,
        heads: Vec<*mut Granule>,
        random: u64,
    }

    impl Ground {
        fn new(class: usize, seed: u64) -> Self {
            Self {
                os: Box::leak(Box::new(Fake::new(4096))),
                arena: Box::leak(Box::new(Arena::new())),
                metadata: Box::leak(Box::new(Metadata::new())),
                bin: Box::leak(Box::new(Bin::new())),
                class,
                tick: 16,
                live: Vec::new(),
                heads: Vec::new(),
                random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            }
        }

        fn supply(&self) -> Supply<'static, Fake> {
            Supply {
                os: self.os,
                arena: self.arena,
                metadata: self.metadata,
                page_shift: 12,
                tick: self.tick,
                aligned_shard: None,
            }
        }

        fn number(&mut self, below: usize) -> usize {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random as usize % below
        }

        fn take(&mut self, count: usize) {
            let mut slots = vec![null_mut(); count];
            let taken = self.bin.take(&self.supply(), self.class, 0, &mut slots, Wait::Yes);
            for &slot in &slots[..taken] {
                let granule = self.arena.granule_of(slot as usize).expect("in a region");
                // SAFETY: every granule has a descriptor; a live slot's knows its slab.
                let head = unsafe { (*granule).head };
                if !self.heads.contains(&head) {
                    self.heads.push(head);
                }
                self.live.push((slot, head));
            }
        }

        fn put(&mut self, count: usize) {
            for _ in 0..count.min(self.live.len()) {
                let at = self.number(self.live.len());
                let (slot, _) = self.live.swap_remove(at);
                let mut returned = Returned { slots: &[slot], left: 1 };
                let (supply, bin) = (self.supply(), (self.class, 0));
                // SAFETY: the slot is one of this bin's, and live.
                assert!(unsafe { self.bin.put(&supply, bin, &mut returned, Age::Fresh, Wait::Yes) });
            }
        }

        fn sweep(&mut self, force: bool) {
            self.tick += 1;
            let supply = self.supply();
            let mut sweep = Sweep::new(&supply, force);
            sweep.bin(self.bin, self.class);
            let left = sweep.finish().left_bytes;
            assert_eq!(left, self.truth() << 12, "the sweep's own count");
        }

        /// Takes some, puts some back or sweeps.
        fn step(&mut self) {
            let slots = CLASS[self.class].slots as usize;
            let count = 1 + self.number(slots.min(400));
            match self.number(8) {
                0..3 => self.take(count),
                3..6 => self.put(count * 2),
                6 => self.sweep(false),
                _ if self.number(4) == 0 => self.sweep(true),
                _ => self.put(count),
            }
        }

        /// Slab by slab.
        fn truth(&self) -> usize {
            use crate::arena::granule::Kind;
            let shape = Shape::new(self.class, 12);
            let _slabs = self.bin.lock(self.os);
            let free = |&head: &*mut Granule| {
                // SAFETY: descriptors stay; one that is a slab is this bin's, the only one, whose lock is held.
                unsafe {
                    if (*head).kind != Kind::Slab {
                        return 0;
                    }
                    Slab(head).free_pages(shape, (*head).resident).count_ones() as usize
                }
            };
            self.heads.iter().map(free).sum()
        }
    }

    #[test]
    fn free_pages_are_counted_whatever_was_taken_put_and_swept() {
        for (bytes, seed) in [(16, 1), (64, 2), (1000, 3), (5000, 4), (44 << 10, 5)] {
            let class = class_of(bytes);
            let mut ground = Ground::new(class, seed);
            let (mut counted, mut free) = (0, 0);
            for _ in 0..300 {
                ground.step();
                let pages = ground.bin.free_pages(ground.os, class);
                assert_eq!(pages, ground.truth(), "slots of {bytes} B");
                counted += 1;
                free += usize::from(pages > 0);
            }
            assert!(free > counted / 20, "{free} of {counted} had any");
        }
    }

    /// The cursor of a count stays on the list whatever is taken off it while the lock is free.
    #[test]
    fn a_count_ends_whatever_goes_on_beside_it() {
        let class = class_of(1000);
        let mut ground = Ground::new(class, 9);
        let (bin, os) = (ground.bin, ground.os);
        let (stop, counts) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let counter = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    bin.free_pages(os, class);
                    counts.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut steps = 0;
            // The other thread may start late.
            while steps < 1500 || (counts.load(Ordering::Relaxed) == 0 && !counter.is_finished()) {
                ground.step();
                steps += 1;
            }
            stop.store(true, Ordering::Relaxed);
            counter.join().unwrap();
            assert!(counts.load(Ordering::Relaxed) > 0);
        });
        assert_eq!(bin.free_pages(os, class), ground.truth());
    }
}
