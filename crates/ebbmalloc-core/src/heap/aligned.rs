//! Aligned requests, and slabs with a lead, for CPython's objects ([`leads`]), and where aligned slots come from beside them: one shard's slabs
//! have no lead, and no thread is on that shard. Its slots are taken one by one; when they are freed, caches keep them
//! among those of other slabs.

use super::heap::{Access, HeapWith, Parts};
use crate::base::exact::u8_of;
use crate::os::Os;
use crate::size::{CLASS, QUANTUM, class_aligned, leads};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

impl<O: Os, P: Parts<O>> HeapWith<O, P> {
    /// A block aligned to `align`, a power of two.
    pub fn allocate_aligned(&self, access: Access, size: usize, align: usize) -> *mut u8 {
        match class_aligned(size, align) {
            Some(class) if self.may_have_lead(class, align) => {
                self.slot_without_lead(access, class)
            }
            Some(class) => self.allocate_slot(access, class),
            None => self.allocate_large(access, size, align).0,
        }
    }

    /// The shard whose slabs have no lead; `None` while no slab has one.
    #[inline]
    pub(super) fn aligned_shard(&self) -> Option<u8> {
        Some(self.aligned_shard.load(Ordering::Relaxed)).filter(|&shard| shard != 0)
    }

    /// New slabs have a lead from now on, where their class has one. While no other thread allocates.
    pub fn lead_slabs(&self) {
        let shard = self.shards().min(P::SHARDS - 1);
        if shard != 0 && self.aligned_shard().is_none() {
            self.shards.store(shard + 1, Ordering::Relaxed);
            self.aligned_shard.store(u8_of(shard), Ordering::Relaxed);
        }
    }

    /// Shards that threads are put on.
    pub(super) fn shards_of_threads(&self) -> usize {
        self.shards() - usize::from(self.aligned_shard().is_some())
    }

    /// Whether slots of `class` in caches and in other shards may be aligned to less than `align`.
    #[inline]
    pub(super) fn may_have_lead(&self, class: usize, align: usize) -> bool {
        align > QUANTUM && leads(class) && self.aligned_shard().is_some()
    }

    /// Smallest class of which every slot in a cache holds `size` bytes and is aligned to `align`, as
    /// [`class_aligned`]; `None` too where some are not aligned.
    #[inline]
    pub fn class_in_caches(&self, size: usize, align: usize) -> Option<usize> {
        class_aligned(size, align).filter(|&class| !self.may_have_lead(class, align))
    }

    /// A slot of `class` that is aligned to all that its size allows. Null if there is no memory.
    pub(super) fn slot_without_lead(&self, access: Access, class: usize) -> *mut u8 {
        let Some(shard) = self.aligned_shard() else {
            return self.allocate_slot(access, class);
        };
        if let Access::Around(_) = access
            && let Some(slot) = P::slot_at_home(self, access, class)
        {
            return slot;
        }
        let size = CLASS[class].size as usize;
        let align = 1 << size.trailing_zeros();
        if let Access::Outside = access {
            return self.parts.allocate_outside(&self.os, size, align);
        }
        let take = || {
            let mut slot = [null_mut()];
            let bin = self.parts.bin(shard as usize, class);
            bin.take(&self.supply(), class, shard, &mut slot, access.wait());
            slot[0]
        };
        let slot = take();
        if !slot.is_null() {
            return slot;
        }
        match access {
            Access::Nested => return self.parts.allocate_outside(&self.os, size, align),
            Access::Cached(own) => self.relieve(Some(own)),
            _ => self.relieve(None),
        }
        take()
    }
}
