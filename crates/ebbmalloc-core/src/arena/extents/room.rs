//! The address space of the extents: regions, one after the other, each used from its front. Asks the kernel
//! for a region where the others are full, and gives up what was never used when address space gets a limit.

use super::{Extents, REGIONS};
use crate::arena::granule::{Fill, Granule};
use crate::arena::region::{NoGrowth, Region};
use crate::base::best_fit::BestFit;
use crate::base::exact::u32_of;
use crate::base::list::{List, Walk};
use crate::os::{Os, OsError};
use crate::size::GRANULE;

/// What is reserved at once where address space is not limited: 1 TiB, of which only what is used
/// costs anything (the kernel keeps one mapping).
const UNLIMITED_GRANULES: usize = (1 << 40) / GRANULE;
/// The least that is worth a region: 4 MiB.
const LEAST_GRANULES: usize = 64;
impl Extents {
    /// Fresh address space: from the last region, or from a new one.
    #[cold]
    pub(in crate::arena) fn grow<O: Os>(&mut self, os: &O, len: u32, align: u32) -> Option<*mut Granule> {
        for _ in 0..2 {
            for index in (0..self.count).rev() {
                let region = &mut self.regions[index];
                let (first, skipped) = match region.grow(os, len, align) {
                    Ok(grown) => grown,
                    Err(NoGrowth::Full) => continue,
                    Err(NoGrowth::Refused(_)) => {
                        self.drop_unused(os);
                        return None;
                    }
                };
                let (head, skip_head) = (region.descriptor(first), region.descriptor(skipped));
                let fill = if region.clean { Fill::Clean } else { Fill::Dirty };
                let (base, left) = (region.base, region.granules - skipped);
                let gap = first - skipped;
                let fresh = gap + len as usize;
                self.split(base + skipped * GRANULE, fresh, left);
                self.split(base + skipped * GRANULE, gap, fresh);
                // SAFETY: `grow` made these descriptors usable; no other thread knows them yet.
                unsafe {
                    head.write(Granule::new(base + first * GRANULE));
                    (*head).len = len;
                    (*head).fill = fill;
                    if gap > 0 {
                        skip_head.write(Granule::new(base + skipped * GRANULE));
                        // Merges with a free extent before it.
                        self.free(skip_head, u32_of(gap), fill, 0);
                    }
                }
                return Some(head);
            }
            self.add_region(os, len as usize + (align as usize - 1)).ok()?;
        }
        None
    }

    /// Gives the last region back if nothing was ever handed out of it: look-ups end at the first such region, and
    /// another may follow.
    fn drop_unused<O: Os>(&mut self, os: &O) {
        let last = self.count - 1;
        if self.regions[last].top == 0 {
            self.count = last;
            core::mem::replace(&mut self.regions[last], Region::NONE).release(os);
        }
    }

    /// Reserves one more region, of at least `least` granules.
    fn add_region<O: Os>(&mut self, os: &O, least: usize) -> Result<(), OsError> {
        if self.count == REGIONS {
            return Err(OsError::OutOfMemory);
        }
        self.page_bytes = os.page_bytes();
        let limit = os.address_space_limit();
        let mut granules = match limit {
            Some(bytes) => (bytes / 8 / GRANULE).min(UNLIMITED_GRANULES),
            None => UNLIMITED_GRANULES,
        };
        // Small regions are no more for room than limited ones.
        self.limited = limit.is_some() || os.region_bytes(self.count).is_some();
        let unit = os.region_unit() / GRANULE;
        let least = match os.region_bytes(self.count) {
            None => least.max(LEAST_GRANULES),
            Some(bytes) => {
                granules = bytes / GRANULE;
                least.checked_next_multiple_of(unit).ok_or(OsError::OutOfMemory)?
            }
        };
        loop {
            granules = granules.next_multiple_of(unit).max(least);
            match self.reserve_apart(os, granules) {
                Ok(region) => {
                    self.regions[self.count] = region;
                    self.count += 1;
                    return Ok(());
                }
                Err(error) if granules == least => return Err(error),
                Err(_) => granules /= 4,
            }
        }
    }

    /// There is a limit on address space. One that was set after the start makes every mapping of the
    /// program fail while an unlimited reservation stands: return the part that was never used.
    pub fn follow_limit<O: Os>(&mut self, os: &O) {
        if !self.limited {
            self.limited = true;
            for region in &mut self.regions[..self.count] {
                region.give_up_unused(os);
            }
        }
    }

    /// In the child of a fork that found the extents half changed: what was handed out so far is left as it is for
    /// ever, free or not, and what is handed out from now on lies after it.
    pub fn abandon(&mut self) {
        for region in &mut self.regions[..self.count] {
            region.abandoned = region.top;
        }
        self.dirty = BestFit::new();
        self.clean = BestFit::new();
        self.aging = Walk::new();
        self.stale = Walk::new();
        self.tails = Walk::new();
        self.given = List::new();
        self.given_runs = 0;
        self.given_granules = 0;
        self.dirty_granules = 0;
        self.clean_granules = 0;
        self.leaving_granules = 0;
        self.fresh_granules = 0;
        self.hollow_bytes = 0;
        self.borders.silent = false;
    }

    /// Whether a block was abandoned: of what its descriptor says only kind, base and length, and what its owner wrote, is true.
    ///
    /// # Safety
    /// `head` is the descriptor of a large block.
    pub(in crate::arena) unsafe fn is_abandoned(&self, head: *mut Granule) -> bool {
        // SAFETY: `head` is the descriptor of a large block (fn contract), whose base does not change.
        let base = unsafe { (*head).base };
        self.regions[..self.count].iter().any(|region| base.wrapping_sub(region.base) < region.abandoned * GRANULE)
    }

    /// Address space made usable so far.
    pub fn mapped_bytes(&self) -> usize {
        self.regions[..self.count].iter().map(Region::committed_bytes).sum::<usize>() - self.given_granules * GRANULE
    }

    /// Bytes committed for byte maps and descriptors, without those whose pages were returned.
    pub fn metadata_bytes(&self) -> usize {
        self.regions[..self.count].iter().map(Region::metadata_bytes).sum::<usize>() - self.hollow_bytes
    }
}

impl Region {
    /// Gives the address space that was never used back to the kernel, when a limit on address space
    /// was set after the start. Returns how many bytes.
    fn give_up_unused<O: Os>(&mut self, os: &O) -> usize {
        let mut given = 0;
        let mut give = |start: usize, end: usize| {
            if start < end {
                // SAFETY: after what is committed nothing was ever handed out.
                unsafe { os.release(start, end - start) };
                given += end - start;
            }
        };
        let (map_end, descriptors_end) = (self.descriptors, self.metadata_end);
        give(self.base + self.committed * GRANULE, self.base + self.granules * GRANULE);
        if !self.gave_up {
            give(self.map + self.map_committed, map_end);
        }
        give(self.descriptors + self.descriptors_committed, descriptors_end);
        self.gave_up = true;
        self.granules = self.committed;
        self.metadata_end = self.descriptors + self.descriptors_committed;
        given
    }
}
