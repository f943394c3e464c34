//! The sweep of a bin: pages inside live slabs on which no slot was live at two ticks running go
//! back to the kernel.
//!
//! The clock is a second chance (two ticks): `seen` has the pages that were free at the last tick,
//! `touched` those of which a refill took a slot at the tick in `stamp`. A page that goes is marked as `leaving` under
//! the bin's lock and its free slots are taken out of the bitmap; the lock is dropped; the kernel
//! is called; under the lock the page is no longer resident and the slots are put back. A refill
//! in between cannot find those slots, and a slab with slots taken out is never whole, so it cannot
//! be released either (loom: `refill_against_return`, `remote_free_against_release`).

use super::bin::{Bin, Slabs, Supply};
use super::slab::{Shape, Slab, mask};
use crate::arena::granule::Granule;
use crate::base::purged::Purged;
use crate::os::{Os, PageRun};
use core::ptr::null_mut;

/// Runs of pages returned with one drop of the lock.
const RUNS: usize = 64;
/// Slabs looked at with the lock held once: about 20 µs.
const SLABS: usize = 32;

struct Batch {
    runs: [PageRun; RUNS],
    run_count: usize,
    slabs: [*mut Granule; SLABS],
    slab_count: usize,
}

impl Bin {
    /// One tick's sweep; with `force` everything free goes, whatever its age.
    pub fn sweep<O: Os>(&self, supply: &Supply<O>, class: usize, force: bool) -> Purged {
        let shape = Shape::new(class, supply.page_shift);
        let mut total = Purged::default();
        // What is listed during the sweep is for the next tick.
        {
            let mut slabs = self.slabs.lock(supply.os);
            if slabs.visit.is_null() {
                return total;
            }
            slabs.sweeping = core::mem::replace(&mut slabs.visit, null_mut());
        }
        loop {
            let mut batch = Batch {
                runs: [PageRun { start: 0, bytes: 0 }; RUNS],
                run_count: 0,
                slabs: [null_mut(); SLABS],
                slab_count: 0,
            };
            let mut slabs = self.slabs.lock(supply.os);
            let mut looked_at = 0;
            while looked_at < SLABS && batch.run_count < RUNS / 2 && !slabs.sweeping.is_null() {
                let slab = Slab(slabs.sweeping);
                looked_at += 1;
                // SAFETY: the lock is held, and the slab is one of this bin's.
                total.more |= unsafe {
                    slabs.unlist(slab);
                    slabs.visit_slab(slab, shape, supply.tick, force, &mut batch)
                };
            }
            let done = slabs.sweeping.is_null();
            drop(slabs);
            if batch.run_count == 0 {
                if done {
                    return total;
                }
                continue;
            }
            // SAFETY: the runs are pages without a live slot whose free slots are out of reach.
            let discarded = unsafe { supply.os.discard(&batch.runs[..batch.run_count]) };
            total.returned_bytes += discarded.returned_bytes;
            total.refused_bytes += discarded.refused_bytes;
            total.calls += 1;
            let mut slabs = self.slabs.lock(supply.os);
            for &head in &batch.slabs[..batch.slab_count] {
                // SAFETY: `visit_slab` marked pages of it as leaving, so it was not released.
                unsafe { slabs.returned(supply, Slab(head), shape, discarded.refused_bytes > 0) };
            }
            if done {
                return total;
            }
        }
    }
}

impl Slabs {
    /// Looks at one slab: marks what leaves, notes what is free for the next tick. True if something
    /// is left for it.
    unsafe fn visit_slab(
        &mut self,
        slab: Slab,
        shape: Shape,
        tick: u32,
        force: bool,
        batch: &mut Batch,
    ) -> bool {
        // SAFETY: the caller holds the lock, and the slab is one of this bin's.
        unsafe {
            let candidates = (*slab.0).resident & !(*slab.0).leaving;
            let free = slab.free_pages(shape, candidates);
            let mut going = if force {
                free
            } else {
                free & (*slab.0).seen & !slab.touched_since(tick)
            };
            if (*slab.0).locked && !force {
                going = 0;
            }
            let mut left = going;
            while left != 0 && batch.run_count < RUNS {
                let first = left.trailing_zeros();
                let count = (left >> first).trailing_ones();
                let pages = mask(first, count);
                left &= !pages;
                batch.runs[batch.run_count] = PageRun {
                    start: (*slab.0).base + ((first as usize) << shape.page_shift),
                    bytes: (count as usize) << shape.page_shift,
                };
                batch.run_count += 1;
            }
            going &= !left;
            (*slab.0).seen = free & !going;
            if going != 0 {
                if !cfg!(ebb_mutation = "leaving_slots") {
                    slab.set_slots_on_pages(shape, going, false);
                }
                (*slab.0).leaving = going;
                self.rebucket(slab, shape);
                batch.slabs[batch.slab_count] = slab.0;
                batch.slab_count += 1;
            }
            let rest = free & !going != 0;
            if rest {
                self.list_for_visit(slab);
            }
            // What the kernel refused waits for a trim.
            rest && !(*slab.0).locked
        }
    }

    /// Completes the return of a slab's pages.
    unsafe fn returned<O: Os>(
        &mut self,
        supply: &Supply<O>,
        slab: Slab,
        shape: Shape,
        refused: bool,
    ) {
        // SAFETY: the caller holds the lock; the slab has leaving pages, so it is still a slab.
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
            if (*slab.0).free == shape.class.slots && (*slab.0).resident == 0 {
                self.remove_slab(supply, slab, shape, false);
            } else {
                self.rebucket(slab, shape);
            }
        }
    }
}
