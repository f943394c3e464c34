//! Aligned requests next to slabs with a lead, which CPython's objects get ([`leads`]): the slabs of one shard have no
//! lead, and no thread is on that shard. Its slots are taken one by one; when they are freed, caches keep them among
//! those of other slabs.

use super::heap::{Access, HeapWith, Parts};
use crate::base::exact::u8_of;
use crate::os::Os;
use crate::size::{QUANTUM, class_aligned, leads};
use core::sync::atomic::Ordering;

impl<O: Os, P: Parts<O>> HeapWith<O, P> {
    /// A block aligned to `align`, a power of two.
    pub fn allocate_aligned(&self, access: Access, size: usize, align: usize) -> *mut u8 {
        match class_aligned(size, align) {
            Some(class) => self.allocate_slot(access, class, align),
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

    /// The shard that a slot of `class` aligned to `align` must come from; `None` if any does.
    #[inline]
    pub(super) fn shard_of_aligned(&self, class: usize, align: usize) -> Option<u8> {
        if align > QUANTUM && leads(class) { self.aligned_shard() } else { None }
    }

    /// Smallest class whose slots hold `size` bytes and are aligned to `align`, as [`class_aligned`]; `None` too if
    /// caches may keep slots of it that are not aligned.
    #[inline]
    pub fn class_in_caches(&self, size: usize, align: usize) -> Option<usize> {
        class_aligned(size, align).filter(|&class| self.shard_of_aligned(class, align).is_none())
    }
}
