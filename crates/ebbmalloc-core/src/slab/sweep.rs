//! The sweep returns pages inside live slabs to the kernel if no slot on them was live at two ticks in a row.
//!
//! For this a slab has two sets of pages: `seen`, the pages that were free at the last tick, and `touched`, the pages
//! from which a refill took a slot at tick `stamp`. A page is returned in three steps:
//!
//! 1. Under the bin's lock the page is marked as `leaving`, and its free slots are removed from the bitmap.
//! 2. Without the lock the kernel is called, once for the pages of many bins.
//! 3. Under the lock the page is marked as not resident, and its slots are put into the bitmap again.
//!
//! In between a refill cannot find the slots, and a slab with leaving pages is not released, even if all of its slots are
//! free (loom: `refill_against_return`, `remote_free_against_release`;
//! `a_slab_that_is_whole_while_its_waste_leaves_stays`).

use super::bin::{Bin, Supply};
use super::shape::{Shape, mask};
use super::slab::Slab;
use super::slabs::Slabs;
use crate::base::lock::assert_none_held;
use crate::base::purged::Purged;
use crate::os::{Discarded, Os, PageRun};
use crate::slab::bin::Age;
use core::ptr::null_mut;

/// Runs of pages returned with one call into the kernel.
const RUNS: usize = 128;
/// Most runs in one slab: if every second of its 64 pages is free.
const RUNS_OF_SLAB: usize = 32;
/// Slabs that are visited, or settled, before the lock is released and taken again.
const SLABS: usize = 32;

/// One pass over all bins: [`Sweep::bin`] for each, then [`Sweep::finish`].
pub struct Sweep<'a, O> {
    supply: &'a Supply<'a, O>,
    /// All free pages are returned, also pages that were in use at the last tick.
    force: bool,
    runs: [PageRun; RUNS],
    run_count: usize,
    /// The slabs that the runs lie in; slabs of one bin are neighbours here.
    slabs: [(Option<&'a Bin>, Slab); RUNS],
    slab_count: usize,
    total: Purged,
}

impl<'a, O: Os> Sweep<'a, O> {
    /// A sweep that has visited no bin yet.
    pub fn new(supply: &'a Supply<'a, O>, force: bool) -> Self {
        Self {
            supply,
            force,
            runs: [PageRun { start: 0, bytes: 0 }; RUNS],
            run_count: 0,
            slabs: [(None, Slab(null_mut())); RUNS],
            slab_count: 0,
            total: Purged::default(),
        }
    }

    /// Visits the slabs of a bin of `class`. Pages to return are gathered; the kernel may be called here or later, at the
    /// latest in [`Sweep::finish`].
    pub fn bin(&mut self, bin: &'a Bin, class: usize) {
        let shape = Shape::new(class, self.supply.page_shift);
        // Slabs that are listed during the sweep are for the next tick.
        let mut slabs = bin.slabs.lock(self.supply.os);
        if slabs.visit.is_null() {
            return;
        }
        slabs.sweeping = core::mem::replace(&mut slabs.visit, null_mut());
        let mut looked_at = 0;
        while !slabs.sweeping.is_null() {
            let full = self.run_count + RUNS_OF_SLAB > RUNS;
            if full || looked_at == SLABS {
                drop(slabs);
                if full {
                    self.give_back();
                }
                slabs = bin.slabs.lock(self.supply.os);
                looked_at = 0;
                continue;
            }
            let slab = Slab(slabs.sweeping);
            looked_at += 1;
            // SAFETY: the lock is held, and the slab is one of this bin's.
            let going = unsafe {
                slabs.unlist(slab);
                let (going, more) = slabs.visit_slab(slab, shape, self.supply.tick, self.force);
                self.total.more |= more;
                let left = (*slab.0).seen.count_ones() as usize;
                self.total.left_bytes += left << shape.page_shift;
                going
            };
            if going != 0 {
                // SAFETY: the slab was on the list of the bin whose lock is held, so it is a slab of this shape.
                self.run_count += unsafe { runs_of(slab, shape, going, &mut self.runs[self.run_count..]) };
                self.slabs[self.slab_count] = (Some(bin), slab);
                self.slab_count += 1;
            }
        }
    }

    /// Returns the last pages; says what the whole pass did.
    pub fn finish(mut self) -> Purged {
        self.give_back();
        self.total
    }

    /// Calls the kernel for the gathered pages, without a lock, then settles the slabs. If the kernel refused a run, the call
    /// is repeated slab by slab, to find out which.
    fn give_back(&mut self) {
        if self.run_count == 0 {
            return;
        }
        assert_none_held();
        // SAFETY: the runs are pages without a live slot whose free slots are out of reach.
        let discarded = unsafe { self.supply.arena.discard(self.supply.os, &self.runs[..self.run_count]) };
        self.total.calls += 1;
        let refused = discarded.refused_bytes > 0;
        let unclear = refused && self.slab_count > 1;
        if !unclear {
            self.total.returned_bytes += discarded.returned_bytes;
            self.total.refused_bytes += discarded.refused_bytes;
        }
        let mut rest = &self.slabs[..self.slab_count];
        while let Some(&(Some(bin), first)) = rest.first() {
            let is_same = |slab: &&(Option<&Bin>, Slab)| slab.0.is_some_and(|of| core::ptr::eq(of, bin));
            let same = rest.iter().take(SLABS).take_while(is_same).count();
            let (now, later) = rest.split_at(same);
            // SAFETY: pages of it are leaving, so it is still a slab, and its class does not change.
            let shape = Shape::new(unsafe { (*first.0).class } as usize, self.supply.page_shift);
            let mut locked = [refused; SLABS];
            if unclear {
                for (locked, &(_, slab)) in locked.iter_mut().zip(now) {
                    // SAFETY: the pages of `slab` are marked as leaving, so no refill gets a slot on them, and this
                    // sweep alone unmarks them.
                    let alone = unsafe { discard_leaving(self.supply, slab, shape) };
                    self.total.returned_bytes += alone.returned_bytes;
                    self.total.refused_bytes += alone.refused_bytes;
                    self.total.calls += 1;
                    *locked = alone.refused_bytes > 0;
                }
            }
            let mut slabs = bin.slabs.lock(self.supply.os);
            for (&locked, &(_, slab)) in locked.iter().zip(now) {
                // SAFETY: `visit_slab` marked pages of it as leaving, so it was not released.
                unsafe { slabs.returned(self.supply, slab, shape, locked) };
            }
            drop(slabs);
            rest = later;
        }
        self.run_count = 0;
        self.slab_count = 0;
    }
}

/// Discards the leaving pages of one slab.
///
/// # Safety
/// They are marked as leaving, and no other thread unmarks them.
unsafe fn discard_leaving<O: Os>(supply: &Supply<O>, slab: Slab, shape: Shape) -> Discarded {
    let mut runs = [PageRun { start: 0, bytes: 0 }; RUNS_OF_SLAB];
    // SAFETY: the pages are leaving (fn contract), so no thread uses them; a slab with leaving pages stays a slab.
    unsafe {
        let count = runs_of(slab, shape, (*slab.0).leaving, &mut runs);
        supply.arena.discard(supply.os, &runs[..count])
    }
}

/// Writes the runs of neighbouring pages in `pages` to `runs`; returns how many there are.
///
/// # Safety
/// The slab is one.
unsafe fn runs_of(slab: Slab, shape: Shape, mut pages: u64, runs: &mut [PageRun]) -> usize {
    // SAFETY: the slab is one (fn contract), and the base of a slab does not change.
    let base = unsafe { (*slab.0).base - slab.shape(shape).lead };
    let mut count = 0;
    while pages != 0
        && let Some(run) = runs.get_mut(count)
    {
        let first = pages.trailing_zeros();
        let len = (pages >> first).trailing_ones();
        pages &= !mask(first, len);
        *run =
            PageRun { start: base + ((first as usize) << shape.page_shift), bytes: (len as usize) << shape.page_shift };
        count += 1;
    }
    count
}

impl Slabs {
    /// Visits one slab: marks the pages that leave, and notes the other free pages for the next tick. Returns the leaving
    /// pages, and whether the next tick has work here.
    unsafe fn visit_slab(&mut self, slab: Slab, shape: Shape, tick: u32, force: bool) -> (u64, bool) {
        // SAFETY: the slab was on this bin's list, and its lock is held (`&mut self` comes from the guard).
        unsafe {
            let candidates = (*slab.0).resident & !(*slab.0).leaving;
            let free = slab.free_pages(shape, candidates);
            let mut going = if force { free } else { free & (*slab.0).seen & !slab.touched_since(tick) };
            if (*slab.0).locked && !force {
                going = 0;
            }
            (*slab.0).seen = free & !going;
            if going != 0 {
                if !cfg!(ebb_mutation = "leaving_slots") {
                    slab.set_slots_on_pages(shape, going, false);
                }
                (*slab.0).leaving = going;
                self.settle_room(slab, shape);
            }
            let rest = free & !going != 0;
            if rest {
                self.list_for_visit(slab);
            }
            // Pages that the kernel refused are tried again by a trim only.
            (going, rest && !(*slab.0).locked)
        }
    }

    /// Completes the return of a slab's pages.
    unsafe fn returned<O: Os>(&mut self, supply: &Supply<O>, slab: Slab, shape: Shape, refused: bool) {
        // SAFETY: the bin's lock is held (`&mut self` comes from the guard), and a slab with leaving pages stays a
        // slab.
        unsafe {
            let pages = (*slab.0).leaving;
            (*slab.0).leaving = 0;
            (*slab.0).locked = refused;
            if refused {
                self.list_for_visit(slab);
            } else {
                (*slab.0).resident &= !pages;
                self.resident_pages -= pages.count_ones() as usize;
            }
            slab.set_slots_on_pages(shape, pages, true);
            if slab.is_whole(shape) && (*slab.0).resident == 0 {
                self.remove_slab(supply, slab, shape, Age::Fresh);
            } else {
                self.settle_room(slab, shape);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
