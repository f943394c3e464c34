//! Decides which memory asks for huge pages. `base/frames.rs` knows where huge pages may be, and splits them.
//!
//! The heap's address space refuses huge pages. A new large block that will be filled asks for them. When the block
//! ends, its addresses refuse again: the kernel keeps the advice with the addresses, and would give huge pages to the
//! next block there too. Refusing does not split a huge page that exists.
//!
//! A program may ask for huge pages in its blocks, as numpy does; that advice also ends with the block.

use super::Arena;
use super::extents::Extents;
use super::granule::{Fill, Granule};
use crate::base::exact::{u32_of, usize_of};
use crate::base::frames::{Frames, HUGE_PAGE};
use crate::os::{Discarded, Os, PageRun};
use crate::size::{GRANULE, granules_for};
use core::sync::atomic::{AtomicI8, Ordering};

/// Granules of a huge page.
pub const FRAME: u32 = u32_of(HUGE_PAGE / GRANULE);
/// Blocks of one size were filled so many times more often than not, so the next will be.
const SURE: i8 = 2;
const MOST_SURE: i8 = 8;
const LEAST_SURE: i8 = -4;
/// From this size on a block asks without such evidence, but not for its first eighth: a huge page that a program begins
/// and does not fill is a small part of it.
const UNPROVEN_FROM: usize = 32 << 20;
/// From this size on a block begins at a huge page. Gaps between smaller ones raised the peak of *buffers* by 28 %.
const ALIGNED_FROM: usize = UNPROVEN_FROM;
/// Most live blocks that ask: each cuts the mapping of the region in up to two places, of 65,530 that a process may have.
const MOST_ASKING: usize = 1000;

/// Whether blocks of about `bytes` were filled.
fn evidence(frames: &Frames, bytes: usize) -> &AtomicI8 {
    let log = bytes.ilog2().saturating_sub(HUGE_PAGE.ilog2()) as usize;
    &frames.filled[log.min(frames.filled.len() - 1)]
}

/// How much of the beginning of a block of `bytes` does not ask; `None` if no part of it asks.
fn spared(frames: &Frames, bytes: usize, zeroed: bool) -> Option<usize> {
    match evidence(frames, bytes).load(Ordering::Relaxed) {
        SURE.. => Some(0),
        // A block that reads as zero is often a table that is filled here and there.
        0.. if bytes >= UNPROVEN_FROM && !zeroed => Some(bytes / 8),
        _ => None,
    }
}

impl Arena {
    /// Little memory is left, or enough again.
    pub fn note_scarcity(&self, scarce: bool) {
        self.frames.scarce.store(scarce, Ordering::Relaxed);
    }

    /// The program asks for huge pages (MADV_HUGEPAGE) in this range. Which block that is is not kept: from now on every
    /// block that could have one pays a call of the kernel when it ends.
    pub fn note_huge_pages<O: Os>(&self, os: &O, start: usize, bytes: usize) {
        self.frames.wished.store(true, Ordering::Relaxed);
        self.mark(os, start, start.saturating_add(bytes));
    }

    /// A new block, or one that grew, asks for huge pages inside of it, if it is likely to be filled. Called without
    /// the lock by the block's owner, before the block is handed out.
    ///
    /// # Safety
    /// `head` is the descriptor of a live large block of the caller's.
    pub unsafe fn ask_for_huge_pages<O: Os>(&self, os: &O, head: *mut Granule, zeroed: bool) {
        // SAFETY: of a live block only its owner, the caller, changes these fields.
        let (base, bytes, fill, asked) =
            unsafe { ((*head).base, usize_of((*head).bits), (*head).fill, (*head).free != 0) };
        if bytes < HUGE_PAGE || fill != Fill::Clean || !os.asks_for_huge_pages() {
            return;
        }
        let frames = &self.frames;
        let (Some(spared), false) = (spared(frames, bytes, zeroed), frames.scarce.load(Ordering::Relaxed)) else {
            return;
        };
        let start = (base + spared).next_multiple_of(HUGE_PAGE);
        let end = (base + bytes) / HUGE_PAGE * HUGE_PAGE;
        if start >= end || !asked && frames.asking.load(Ordering::Relaxed) >= MOST_ASKING {
            return;
        }
        if self.mark(os, start, end) && os.ask_for_huge_pages(start, end - start) && !asked {
            frames.asking.fetch_add(1, Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { (*head).free = 1 };
        }
    }

    /// A large block returns what lies after its first `kept` granules: huge pages are refused there as everywhere else.
    /// Called without the lock, which no system call that changes mappings is made under.
    ///
    /// # Safety
    /// `head` is a valid descriptor. If it is no live block's, a contract was broken that is found out later;
    /// the advice does no harm.
    pub(super) unsafe fn end_huge_pages<O: Os>(&self, os: &O, head: *mut Granule, kept: usize) {
        // SAFETY: the descriptor is valid (fn contract); of a live block only its owner changes these fields.
        let (base, len, bytes, fill, asked) =
            unsafe { ((*head).base, (*head).len as usize, usize_of((*head).bits), (*head).fill, (*head).free) };
        if bytes < HUGE_PAGE || kept >= len {
            return;
        }
        if kept == 0 && fill == Fill::Clean && os.asks_for_huge_pages() {
            self.learn(os, base, bytes);
        }
        if asked != 0 || self.frames.wished.load(Ordering::Relaxed) {
            os.settle_huge_pages(base + kept * GRANULE, (len - kept) * GRANULE);
        }
        if asked != 0 && kept == 0 {
            self.frames.asking.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { (*head).free = 0 };
        }
    }

    /// A block that began without pages ends: was it filled?
    fn learn<O: Os>(&self, os: &O, base: usize, bytes: usize) {
        let page = os.page_bytes();
        let filled = (1..=4).filter(|part| os.is_resident(base + bytes / 4 / page * page * part - page)).count();
        let evidence = evidence(&self.frames, bytes);
        let before = evidence.load(Ordering::Relaxed);
        let now = match filled {
            4 => (before + 1).min(MOST_SURE),
            3 => before,
            _ => (before - 2).max(LEAST_SURE),
        };
        evidence.store(now, Ordering::Relaxed);
    }

    /// [`Os::discard`] of memory of this arena.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn discard<O: Os>(&self, os: &O, runs: &[PageRun]) -> Discarded {
        let view = &self.views[0];
        let top = view.base.load(Ordering::Relaxed) + view.top.load(Ordering::Relaxed) * GRANULE;
        // SAFETY: the contract is passed on; nothing was handed out beyond the top.
        unsafe { self.frames.discard(os, runs, top) }
    }

    /// Notes that huge pages may be in the frames that the range touches.
    pub(super) fn mark<O: Os>(&self, os: &O, start: usize, end: usize) -> bool {
        self.frames.mark(os, self.views[0].base.load(Ordering::Relaxed), start, end)
    }
}

impl Arena {
    /// A huge page for slabs of `granules` each, all of `class`; returns the head of the first. It is faulted in when it is
    /// first touched, and all of it counts as resident from now on. `before` is the last one, which is touched by now and
    /// need not ask any more.
    pub fn allocate_frame<O: Os>(
        &self,
        os: &O,
        extents: &mut Extents,
        class: u8,
        granules: u32,
        before: &mut usize,
    ) -> Option<*mut Granule> {
        if extents.limited || self.frames.scarce.load(Ordering::Relaxed) || !os.asks_for_huge_pages() {
            return None;
        }
        // SAFETY: the lock is held (`extents` comes from its guard).
        if !unsafe { extents.dirty.best_fit(granules) }.is_null() {
            return None;
        }
        let head = extents.allocate(os, FRAME, FRAME)?;
        self.publish(extents);
        // SAFETY: the granules were just allocated: no other thread knows them.
        unsafe {
            let start = (*head).base;
            if (*head).fill == Fill::Clean && !self.mark(os, start, start + HUGE_PAGE) {
                extents.free(head, FRAME, Fill::Clean, 0);
                return None;
            }
            if *before != 0 {
                os.settle_huge_pages(*before, HUGE_PAGE);
            }
            os.ask_for_huge_pages(start, HUGE_PAGE);
            *before = start;
            for index in 0..FRAME / granules {
                let skip = index * granules;
                let slab = head.wrapping_add(skip as usize);
                (*slab).base = start + skip as usize * GRANULE;
                (*slab).len = granules;
                (*slab).fill = Fill::Dirty;
                self.mark_slab(slab, class, granules);
            }
        }
        Some(head)
    }
}

impl Extents {
    /// [`Extents::allocate`] for a large block: where it gets new pages, at the beginning of a huge page if it has room
    /// for one.
    pub(super) fn allocate_for_large<O: Os>(
        &mut self,
        os: &O,
        bytes: usize,
        align: u32,
        is_guarded: bool,
    ) -> Option<*mut Granule> {
        let len = granules_for(bytes);
        if bytes < ALIGNED_FROM || align > 1 || self.limited || !os.asks_for_huge_pages() {
            // Room for the guard.
            if is_guarded
                && bytes.is_multiple_of(GRANULE)
                && let Some(head) = self.allocate(os, len + 1, 1)
            {
                return Some(head);
            }
            return self.allocate(os, len, align);
        }
        // SAFETY: the lock is held (`&mut self` comes from the guard), and the trees hold heads of free extents that are
        // long enough as asked.
        unsafe {
            let dirty = self.dirty.best_fit(len);
            if !dirty.is_null() {
                return Some(self.carve_at(dirty, 0, len));
            }
            let clean = self.clean.best_fit(len);
            if !clean.is_null() && (*clean).base.is_multiple_of(HUGE_PAGE) {
                return Some(self.carve_at(clean, 0, len));
            }
        }
        self.allocate(os, len, FRAME).or_else(|| self.allocate(os, len, 1))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::lock::Wait;
    use crate::os::fake::Fake;

    const MIB: usize = 1 << 20;

    fn kernel() -> Fake {
        let os = Fake::new(4096);
        os.allow_huge_pages();
        os
    }

    /// A block that asks if it may, and its descriptor.
    fn block(arena: &Arena, os: &Fake, bytes: usize, zeroed: bool) -> *mut Granule {
        let made = arena.allocate_large(os, bytes, 1, 16, Wait::Yes).expect("memory");
        let head = arena.granule_of(made.start).expect("a block of the arena");
        // SAFETY: the block was made just now.
        unsafe { arena.ask_for_huge_pages(os, head, zeroed) };
        head
    }

    fn free(arena: &Arena, os: &Fake, head: *mut Granule) {
        // SAFETY: a live block, freed once.
        assert!(unsafe { arena.free_large(os, head, (*head).base, 16, Wait::Yes) });
    }

    /// Makes a block, frees it and returns its pages; whether it asked for huge pages.
    fn asked(arena: &Arena, os: &Fake, bytes: usize, zeroed: bool) -> bool {
        let head = block(arena, os, bytes, zeroed);
        let asked = !os.record().asking.is_empty();
        free(arena, os, head);
        assert_eq!(os.record().asking, [], "the wish ends with the block");
        arena.purge(os, 20, true);
        arena.lock(os).validate();
        asked
    }

    #[test]
    fn a_long_block_asks_for_all_but_its_first_eighth() {
        let (os, arena) = (kernel(), Arena::new());
        let head = block(&arena, &os, 256 * MIB + 4096, false);
        // SAFETY: a live block.
        let start = unsafe { (*head).base };
        assert!(start.is_multiple_of(HUGE_PAGE));
        let asking = PageRun { start: start + 34 * MIB, bytes: 222 * MIB };
        assert_eq!(os.record().asking, [asking]);
        free(&arena, &os, head);
        assert_eq!(os.record().asking, []);
    }

    #[test]
    fn blocks_ask_as_far_as_those_of_their_size_were_filled() {
        let (os, arena) = (kernel(), Arena::new());
        assert_eq!([4, 4, 4].map(|mib| asked(&arena, &os, mib * MIB, false)), [false, false, true]);
        assert!(asked(&arena, &os, 4 * MIB, true), "a zeroed one is filled as well");
        assert!(!asked(&arena, &os, 8 * MIB, false), "another size");
        os.set_sparse(true);
        assert_eq!([4, 4].map(|mib| asked(&arena, &os, mib * MIB, false)), [true, true]);
        assert!(!asked(&arena, &os, 4 * MIB, false));
        assert_eq!([64, 64].map(|mib| asked(&arena, &os, mib * MIB, false)), [true, false]);
        assert!(!asked(&arena, &os, 128 * MIB, true));
    }

    #[test]
    fn nothing_asks_near_a_limit_or_against_the_setting() {
        let (os, arena) = (kernel(), Arena::new());
        arena.note_scarcity(true);
        assert!(!asked(&arena, &os, 64 * MIB, false));
        arena.note_scarcity(false);
        assert!(asked(&arena, &os, 64 * MIB, false));
        let (os, arena) = (Fake::new(4096), Arena::new());
        assert!(!asked(&arena, &os, 64 * MIB, false));
    }

    #[test]
    fn a_huge_page_of_which_a_part_is_returned_is_split_once() {
        let (os, arena) = (kernel(), Arena::new());
        let head = block(&arena, &os, 64 * MIB, false);
        // SAFETY: a live block.
        let start = unsafe { (*head).base };
        // SAFETY: as above.
        assert!(unsafe { arena.resize_large(&os, head, 33 * MIB, 16) });
        arena.purge(&os, 20, true);
        assert_eq!(os.record().split, [start + 33 * MIB]);
        // SAFETY: as above.
        assert!(unsafe { arena.resize_large(&os, head, 32 * MIB + 64 * 1024, 16) });
        arena.purge(&os, 20, true);
        assert_eq!(os.record().split.len(), 1);
        free(&arena, &os, head);
        arena.purge(&os, 20, true);
        assert_eq!(os.record().split.len(), 1, "what goes whole is not split");
    }

    #[test]
    fn a_frame_is_cut_into_slabs_and_stops_asking_with_the_next() {
        let (os, arena) = (kernel(), Arena::new());
        let mut last = 0;
        let mut extents = arena.lock(&os);
        let first = arena.allocate_frame(&os, &mut extents, 5, 2, &mut last).expect("memory");
        // SAFETY: made just now.
        let start = unsafe { (*first).base };
        assert_eq!(os.record().asking, [PageRun { start, bytes: HUGE_PAGE }]);
        assert_eq!(arena.class_of(start + HUGE_PAGE - 1), 5);
        let next = arena.allocate_frame(&os, &mut extents, 5, 2, &mut last).expect("memory");
        // SAFETY: made just now.
        let start = unsafe { (*next).base };
        assert_eq!(os.record().asking, [PageRun { start, bytes: HUGE_PAGE }]);
        for index in 0..FRAME / 2 {
            let slab = first.wrapping_add(2 * index as usize);
            // SAFETY: slabs of this arena, which no thread uses.
            unsafe { arena.free_slab(&mut extents, slab, 2, (*slab).fill, 16) };
        }
        extents.validate();
        let third = arena.allocate_frame(&os, &mut extents, 5, 2, &mut last);
        assert!(third.is_none(), "memory that is resident already is used first");
    }
}
