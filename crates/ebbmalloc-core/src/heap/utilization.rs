//! How full the slab is that a block lies in: what a program that defragments itself asks.

use super::Heap;
use crate::arena::granule::{Granule, Kind};
use crate::base::exact::usize_of;
use crate::cache::bins::SHARDS;
use crate::cache::explicit::ExplicitArena;
use crate::os::Os;
use crate::size::{CLASS, GRANULE};

/// What the memory at an address is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A slab that begins at `slab`; the slot that the address lies in begins at `slot`.
    Slot {
        /// The first slot.
        slab: usize,
        /// The slot itself.
        slot: usize,
    },
    /// The first granule of a large block, or the beginning of a block outside the arenas: it begins here.
    Large(usize),
    /// None of these, or not known.
    Other,
}

/// Of the slab of a block, or of a large block, which is alone in its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utilization {
    /// Slots that are free.
    pub free: usize,
    /// Slots.
    pub slots: usize,
    /// Bytes.
    pub bytes: usize,
    /// Free slots in all slabs of its bin.
    pub bin_free: usize,
    /// Slots in all slabs of its bin.
    pub bin_slots: usize,
}

impl Utilization {
    /// Whether the slab is worth emptying: it has room, and is at most an eighth fuller than the slabs
    /// of its bin are on average. What moves out goes to the slabs with the lowest addresses, so that the others end.
    pub fn is_sparse(&self) -> bool {
        let (used, bin_used) = (self.slots - self.free, self.bin_slots - self.bin_free);
        // used / slots <= bin_used / bin_slots * 9 / 8, in numbers that cannot overflow.
        let here = 8 * used as u128 * self.bin_slots as u128;
        let mean = 9 * bin_used as u128 * self.slots as u128;
        self.free > 0 && here <= mean
    }
}

impl<O: Os> Heap<O> {
    /// About the block at `address`; zeros if no block of ours is there.
    pub fn utilization(&self, address: usize) -> Utilization {
        let supply = self.supply();
        let Some((head, arena)) = self.slab_at(address) else {
            return self.utilization_of_large(address);
        };
        // SAFETY: the descriptor of a slab with a live slot, which stays one.
        let (class, shard) = unsafe { ((*head).class as usize, (*head).shard) };
        let shape = &CLASS[class];
        let bin = match arena {
            Some(arena) => arena.bin(class),
            None => self.parts.bins.get(shard as usize % SHARDS, class),
        };
        let slabs = bin.lock(supply.os);
        let slots = shape.slots as usize;
        Utilization {
            // SAFETY: the descriptor is a slab's, and the bin's lock is held.
            free: unsafe { (*head).free } as usize,
            slots,
            bytes: shape.granules as usize * GRANULE,
            bin_free: (slabs.slabs * slots).saturating_sub(slabs.slots_out),
            bin_slots: slabs.slabs * slots,
        }
    }

    fn slab_at(&self, address: usize) -> Option<(*mut Granule, Option<&ExplicitArena>)> {
        let (granule, arena) = self.granule_at(address)?;
        // SAFETY: every granule of a region has a descriptor; one that is in use knows its head.
        unsafe {
            let head = (*granule).head;
            let is_slab = matches!((*granule).kind, Kind::Slab | Kind::SlabTail);
            // A granule inside other units may remember a slab that ended.
            let is_slab = is_slab && !head.is_null() && (*head).kind == Kind::Slab;
            is_slab.then_some((head, arena))
        }
    }

    /// What the memory at `address`, which may be any, is part of.
    pub fn memory_at(&self, address: usize) -> Memory {
        if let Some((head, _)) = self.slab_at(address) {
            // SAFETY: the descriptor of a slab; base and class change only with the slab.
            let (slab, class) = unsafe { ((*head).base, (*head).class as usize) };
            let size = CLASS[class].size as usize;
            return match address.checked_sub(slab) {
                Some(offset) => Memory::Slot { slab, slot: slab + CLASS[class].slot_of(offset) * size },
                None => Memory::Other,
            };
        }
        match self.granule_at(address) {
            // SAFETY: every granule of a region has a descriptor.
            Some((granule, _)) => unsafe {
                match (*granule).kind {
                    Kind::Large if address.wrapping_sub((*granule).base) < GRANULE => Memory::Large((*granule).base),
                    _ => Memory::Other,
                }
            },
            None if self.parts.outside.size(address).is_some() => Memory::Large(address),
            None => Memory::Other,
        }
    }

    /// Whether `address` lies in memory of an arena.
    pub fn is_own(&self, address: usize) -> bool {
        self.granule_at(address).is_some()
    }

    /// Whether `address` lies in an arena of the program's own, which may end with all its blocks.
    pub fn is_in_explicit_arena(&self, address: usize) -> bool {
        self.arena.granule_of(address).is_none() && self.parts.bins.explicit.find(address).is_some()
    }

    fn granule_at(&self, address: usize) -> Option<(*mut Granule, Option<&ExplicitArena>)> {
        if let Some(granule) = self.arena.granule_of(address) {
            return Some((granule, None));
        }
        let arena = self.parts.bins.explicit.find(address)?;
        Some((arena.arena.granule_of(address)?, Some(arena)))
    }

    fn utilization_of_large(&self, address: usize) -> Utilization {
        let bytes = match self.granule_at(address) {
            // SAFETY: every granule of a region has a descriptor.
            Some((granule, _)) => unsafe {
                let starts = (*granule).kind == Kind::Large && (*granule).base == address;
                starts.then_some(usize_of((*granule).bits))
            },
            None => self.parts.outside.size(address),
        };
        match bytes {
            Some(bytes) => Utilization { slots: 1, bytes, ..Utilization::default() },
            None => Utilization::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Utilization;

    fn is_sparse(slots: usize, free: usize, bin_slots: usize, bin_free: usize) -> bool {
        let slab = Utilization { free, slots, bytes: 65536, bin_free, bin_slots };
        slab.is_sparse()
    }

    #[test]
    fn slabs_that_are_no_fuller_than_others_are_worth_emptying() {
        // A tenth used, and a tenth of the bin.
        assert!(is_sparse(100, 90, 1000, 900));
        assert!(is_sparse(100, 99, 1000, 900));
        // Fuller than the others, and full.
        assert!(!is_sparse(100, 80, 1000, 900));
        assert!(!is_sparse(100, 0, 1000, 900));
        // A large block is alone in its extent; an address that is no block is in none.
        assert!(!is_sparse(1, 0, 1, 0));
        assert!(!Utilization::default().is_sparse());
    }
}
