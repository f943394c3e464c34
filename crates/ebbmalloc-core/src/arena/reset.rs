//! The end of everything in an arena: all blocks at once, and its address space. For explicit arenas
//! alone: the heap's own has no end.

use super::Arena;
use super::extents::Extents;
use super::granule::{Fill, GIVEN_ADDRESSES, Granule, Kind};
use super::region::Region;
use crate::base::exact::usize_of;
use crate::os::Os;
use crate::os::hooks::Borders;
use crate::size::GRANULE;
use core::sync::atomic::Ordering;

impl Arena {
    /// See [`Lock::freeze`].
    #[cfg(test)]
    pub fn freeze<O: Os>(&self, os: &O) {
        self.extents.freeze(os);
    }

    /// See [`Lock::is_held`](crate::base::lock::Lock::is_held).
    pub fn is_held(&self) -> bool {
        self.extents.is_held()
    }

    /// See [`Lock::thaw`].
    ///
    /// # Safety
    /// As there.
    #[cfg(test)]
    pub unsafe fn thaw<O: Os>(&self, os: &O) {
        // SAFETY: the contract is the lock's own: this thread froze it.
        unsafe { self.extents.thaw(os) }
    }

    /// See [`Lock::reset`](crate::base::lock::Lock::reset).
    ///
    /// # Safety
    /// As there.
    pub unsafe fn reset(&self) {
        // SAFETY: the contract is the lock's own: no other thread of this process exists that could hold it.
        unsafe { self.extents.reset() }
    }

    /// Whether a part of the range lies in a region, in what was handed out of it.
    pub fn overlaps(&self, start: usize, bytes: usize) -> bool {
        self.views.iter().any(|view| {
            let top = view.top.load(Ordering::Acquire);
            let base = view.base.load(Ordering::Relaxed);
            top > 0 && base < start + bytes && start < base + top * GRANULE
        })
    }

    /// Takes every slab and every large block back. `unmake` is called with each slab and says whether
    /// its pages may be resident, `forget` with each large block.
    ///
    /// # Safety
    /// No thread uses a block of the arena, no bin knows a slab of it, and nothing of it is leaving.
    pub unsafe fn free_everything<O: Os>(
        &self,
        os: &O,
        tick: u32,
        mut unmake: impl FnMut(*mut Granule) -> Fill,
        mut forget: impl FnMut(*mut Granule),
    ) {
        let mut extents = self.lock(os);
        for number in 0..extents.count {
            let region = extents.regions[number];
            let mut index = region.abandoned;
            while index < region.top {
                let head = region.descriptor(index);
                // SAFETY: `head` is the first granule of a unit, whose length stays there whatever it
                // merges with; units follow each other without a gap.
                unsafe {
                    let len = (*head).len;
                    debug_assert!(len > 0);
                    match (*head).kind {
                        Kind::Slab => {
                            let fill = unmake(head);
                            self.free_slab(&mut extents, head, len, fill, tick);
                        }
                        Kind::Large => {
                            forget(head);
                            extents.unlist_tail(head);
                            extents.large_counts.freed(usize_of((*head).bits));
                            extents.free(head, len, Fill::Dirty, tick);
                        }
                        _ => {}
                    }
                    index += len.max(1) as usize;
                }
            }
        }
        extents.large_bytes = 0;
        extents.large_blocks = 0;
    }

    /// Says whom to tell where units begin and end, from now on.
    pub fn set_borders<O: Os>(&self, os: &O, borders: Borders) {
        let mut extents = self.lock(os);
        let silent = extents.borders.silent;
        extents.borders = borders;
        extents.borders.silent = silent;
    }

    /// Joins nothing from now on, or does so again: see [`Borders`].
    pub fn set_silent<O: Os>(&self, os: &O, silent: bool) {
        self.lock(os).borders.silent = silent;
    }

    /// Gives all address space back.
    ///
    /// # Safety
    /// No thread uses a block of the arena or looks an address of it up, and nothing of it is leaving.
    pub unsafe fn release_regions<O: Os>(&self, os: &O) {
        let mut extents = self.lock(os);
        for view in &self.views {
            view.top.store(0, Ordering::Release);
        }
        let count = extents.count;
        let regions: [Region; super::extents::REGIONS] = extents.regions;
        for region in &regions[..count] {
            // SAFETY: the lock is held, and only free units are left.
            unsafe { extents.release_blocks(os, region) };
        }
        *extents = Extents::new();
        drop(extents);
        for region in &regions[..count] {
            region.release_metadata(os);
        }
    }
}

impl Extents {
    /// Gives a region's address space back: whole, as it came, but for what was given up before.
    ///
    /// # Safety
    /// As for [`Arena::release_regions`].
    unsafe fn release_blocks<O: Os>(&self, os: &O, region: &Region) {
        let release = |from: usize, to: usize| {
            if from < to {
                // SAFETY: no thread uses the region any more (fn contract), and the part lies inside it.
                unsafe {
                    os.release_blocks(region.base + from * GRANULE, (to - from) * GRANULE);
                }
            }
        };
        let (mut from, mut at) = (region.abandoned, region.abandoned);
        while at < region.granules {
            let head = region.descriptor(at);
            let (mut next, mut given) = (region.granules, false);
            if at < region.top {
                // SAFETY: units follow each other without a gap up to `top`.
                unsafe {
                    next = at + (*head).len.max(1) as usize;
                    given = (*head).kind == Kind::Leaving && (*head).flags & GIVEN_ADDRESSES != 0;
                }
            }
            if given {
                release(from, at);
                from = next;
            } else if from < at {
                let start = region.base + from * GRANULE;
                self.borders.merge(start, (at - from) * GRANULE, (next - at) * GRANULE);
            }
            at = next;
        }
        release(from, region.granules);
    }
}
