//! A region: one reservation of address space with its byte map and its descriptors.
//!
//! Address space is handed out from the front; granules from `top` on were never used. The byte map has one byte per
//! granule: the class of the slab there, or 0. It is readable for the whole region, so that a look-up is one subtraction,
//! one comparison and one load.

use super::granule::Granule;
use crate::os::{Os, OsError, Scarce};
use crate::size::GRANULE;
use core::sync::atomic::AtomicU8;

/// Address space is made usable in steps of a quarter of what is usable, from 1 to 4 MiB: in a small process a write
/// far beyond a block faults, and some calls of the kernel more are 10 microseconds.
const STEPS: (usize, usize) = (16, 64);

/// See the module. Guarded by the arena's lock, but for look-ups through the published addresses.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Address of the first granule.
    pub base: usize,
    /// Granules reserved.
    pub granules: usize,
    /// Granules handed out so far: the bound of every look-up.
    pub top: usize,
    /// Granules that were never used read as zero and are not resident.
    pub clean: bool,
    /// Granules that are readable and writable.
    pub(super) committed: usize,
    pub(super) map: usize,
    pub(super) descriptors: usize,
    pub(super) map_committed: usize,
    pub(super) descriptors_committed: usize,
    pub(super) metadata_end: usize,
    pub(super) gave_up: bool,
    /// Granules below this index were abandoned; see [`Extents::abandon`](super::extents::Extents::abandon).
    pub abandoned: usize,
}

/// Why a region has nothing to hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoGrowth {
    /// Its address space is used up: another region may have more.
    Full,
    /// The kernel gives no memory. Another region would not help.
    Refused(OsError),
}

impl Region {
    /// No region.
    pub const NONE: Self = Self {
        base: 0,
        granules: 0,
        top: 0,
        clean: false,
        committed: 0,
        map: 0,
        descriptors: 0,
        map_committed: 0,
        descriptors_committed: 0,
        metadata_end: 0,
        gave_up: false,
        abandoned: 0,
    };

    /// Reserves a region of `granules` granules and room for its map and descriptors.
    pub fn reserve<O: Os>(os: &O, granules: usize) -> Result<Self, OsError> {
        let map_bytes = granules.next_multiple_of(GRANULE);
        let descriptor_bytes = (granules * size_of::<Granule>()).next_multiple_of(GRANULE);
        let blocks = os.reserve_blocks(granules * GRANULE, GRANULE)?;
        let base = blocks.start;
        let map = match os.reserve(map_bytes + descriptor_bytes, GRANULE) {
            Ok(map) => map.as_ptr() as usize,
            Err(error) => {
                // SAFETY: reserved just above, no thread knows it.
                unsafe { os.release_blocks(base, granules * GRANULE) };
                return Err(error);
            }
        };
        os.settle_huge_metadata(map, map_bytes + descriptor_bytes);
        Ok(Self {
            base,
            granules,
            clean: blocks.clean,
            map,
            descriptors: map + map_bytes,
            metadata_end: map + map_bytes + descriptor_bytes,
            ..Self::NONE
        })
    }

    /// Undoes [`Region::reserve`].
    pub fn release<O: Os>(self, os: &O) {
        // SAFETY: called only for a region that no thread uses anything of.
        unsafe { os.release_blocks(self.base, self.granules * GRANULE) };
        self.release_metadata(os);
    }

    /// The same, if the address space of its blocks was unmapped before.
    pub fn release_metadata<O: Os>(self, os: &O) {
        // SAFETY: no thread uses anything of the region any more, as `self` is consumed; the range is its metadata.
        unsafe { os.release(self.map, self.metadata_end - self.map) };
    }

    /// Hands out `granules` fresh granules aligned to `align` granules; returns the index of the
    /// first. They are as the region is. The second value is where the granules start that were skipped for the
    /// alignment. No descriptor is written, whatever the length: each reads as zero, which is [`Kind::Unused`].
    ///
    /// [`Kind::Unused`]: super::granule::Kind::Unused
    pub fn grow<O: Os>(&mut self, os: &O, granules: u32, align: u32) -> Result<(usize, usize), NoGrowth> {
        let (granules, align_bytes) = (granules as usize, align as usize * GRANULE);
        let top_address = self.base + self.top * GRANULE;
        let first_address = top_address.checked_next_multiple_of(align_bytes).ok_or(NoGrowth::Full)?;
        let first = (first_address - self.base) / GRANULE;
        let end = first.checked_add(granules).ok_or(NoGrowth::Full)?;
        if end > self.granules {
            return Err(NoGrowth::Full);
        }
        if end > self.committed {
            let step = (self.committed / 4).next_power_of_two().clamp(STEPS.0, STEPS.1);
            let goal = end.next_multiple_of(step).min(self.granules);
            // The kernel may have less memory left than a whole step.
            self.commit_to(os, goal).or_else(|_| self.commit_to(os, end)).map_err(NoGrowth::Refused)?;
        }
        let skipped = self.top;
        self.top = end;
        Ok((first, skipped))
    }

    /// Makes all granules below `goal` usable. If the kernel refuses, nothing more is charged than before.
    fn commit_to<O: Os>(&mut self, os: &O, goal: usize) -> Result<(), OsError> {
        let (map_before, descriptors_before) = (self.map_committed, self.descriptors_committed);
        let result = self.commit_all(os, goal);
        if result.is_err() {
            // A thousandth of a block that no machine has is more than a limit may have left.
            let map = undo_commit(os, self.map, map_before, self.map_committed);
            let descriptors = undo_commit(os, self.descriptors, descriptors_before, self.descriptors_committed);
            (self.map_committed, self.descriptors_committed) = (map, descriptors);
        }
        result
    }

    fn commit_all<O: Os>(&mut self, os: &O, goal: usize) -> Result<(), OsError> {
        let map_goal = goal.next_multiple_of(GRANULE);
        if map_goal > self.map_committed {
            // SAFETY: inside the reservation of the map.
            unsafe { os.commit(self.map + self.map_committed, map_goal - self.map_committed)? };
            self.map_committed = map_goal;
        }
        let descriptor_goal = (goal * size_of::<Granule>()).next_multiple_of(GRANULE);
        if descriptor_goal > self.descriptors_committed {
            let start = self.descriptors + self.descriptors_committed;
            // SAFETY: inside the reservation of the descriptors.
            unsafe { os.commit(start, descriptor_goal - self.descriptors_committed)? };
            self.descriptors_committed = descriptor_goal;
        }
        let start = self.base + self.committed * GRANULE;
        // SAFETY: inside the reservation of the heap.
        unsafe { os.commit_blocks(start, (goal - self.committed) * GRANULE)? };
        self.committed = goal;
        Ok(())
    }

    /// The descriptor of granule `index`.
    #[inline(always)]
    pub fn descriptor(&self, index: usize) -> *mut Granule {
        (self.descriptors as *mut Granule).wrapping_add(index)
    }

    /// The byte of granule `index` in the byte map.
    #[inline(always)]
    pub fn byte(&self, index: usize) -> *const AtomicU8 {
        (self.map as *const AtomicU8).wrapping_add(index)
    }

    /// Bytes committed for the map and the descriptors.
    pub fn metadata_bytes(&self) -> usize {
        self.map_committed + self.descriptors_committed
    }

    /// Bytes of granules that are readable and writable.
    pub fn committed_bytes(&self) -> usize {
        self.committed * GRANULE
    }
}

/// Takes a commit of metadata back that no granule needs: from `before` bytes after `start` to `after`. Returns how
/// many bytes are committed.
fn undo_commit<O: Os>(os: &O, start: usize, before: usize, after: usize) -> usize {
    if before == after {
        return after;
    }
    let (first, bytes) = (start + before, after - before);
    // SAFETY: committed by the call that undoes it, and nothing was written there.
    if unsafe { os.give_up(first, bytes, Scarce::Charge) }.is_err() {
        return after;
    }
    os.settle_huge_metadata(first, bytes);
    before
}
