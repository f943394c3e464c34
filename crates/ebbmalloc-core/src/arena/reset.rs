//! The end of everything in an arena: all blocks at once, and its address space. For explicit arenas
//! alone: the heap's own has no end.

use super::Arena;
use super::extents::Extents;
use super::granule::{Fill, Granule, Kind};
use super::region::Region;
use crate::os::Os;
use core::sync::atomic::Ordering;

impl Arena {
    /// Takes every slab and every large block back. `unmake` is called with each slab and says whether
    /// its pages may be resident.
    ///
    /// # Safety
    /// Nobody uses a block of the arena, no bin knows a slab of it, and nothing of it is leaving.
    pub unsafe fn free_everything<O: Os>(
        &self,
        os: &O,
        tick: u32,
        mut unmake: impl FnMut(*mut Granule) -> Fill,
    ) {
        let mut extents = self.lock(os);
        for number in 0..extents.count {
            let region = extents.regions[number];
            let mut index = 0;
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
                            extents.unlist_tail(head);
                            extents.large_counts.freed((*head).bits as usize);
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

    /// Gives all address space back.
    ///
    /// # Safety
    /// Nobody uses a block of the arena or looks an address of it up, and nothing of it is leaving.
    pub unsafe fn release_regions<O: Os>(&self, os: &O) {
        let mut extents = self.lock(os);
        for view in &self.views {
            view.top.store(0, Ordering::Release);
        }
        let count = extents.count;
        let regions: [Region; super::extents::REGIONS] = extents.regions;
        *extents = Extents::new();
        drop(extents);
        for region in &regions[..count] {
            region.release(os);
        }
    }
}
