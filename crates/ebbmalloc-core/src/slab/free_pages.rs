//! How many resident pages of a bin's slabs hold nothing live or cached: what a purge returns, without the free
//! slots next to live ones. For statistics; nothing is counted while slots come and go.
//!
//! A slab with such a page is on the list that the sweep visits, or on the rest of that list during a sweep: slots came
//! back since the sweep visited it, or the sweep has listed it again. So only these slabs are counted. The lock is
//! released now and then. Meanwhile `counting` points to a slab of the list: if that slab leaves the list, `unlist` moves
//! it to the next. Slabs that are listed meanwhile are missed: they became free after the count began, or a sweep
//! overtook the count.

use super::bin::Bin;
use super::shape::Shape;
use super::slab::Slab;
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

#[cfg(all(test, not(loom)))]
mod tests;
