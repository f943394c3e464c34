//! Requests for blocks: small ones from a cache or a bin, large ones from the arena.

use super::heap::{Access, HeapWith, Parts};
use crate::base::exact::u8_of;
use crate::base::lock::Wait;
use crate::os::Os;
use crate::size::{CLASS, CLASSES, SMALL_MAX, class_of, is_possible};
use core::ptr::null_mut;

impl<O: Os, P: Parts<O>> HeapWith<O, P> {
    /// A block of at least `size` bytes, aligned to 16. Null if there is no memory.
    pub fn allocate(&self, access: Access, size: usize) -> *mut u8 {
        if size <= SMALL_MAX {
            self.allocate_slot(access, class_of(size), 1)
        } else {
            self.allocate_large(access, size, 1).0
        }
    }

    /// A slot of `class`, aligned to `align`, which divides the size of the class. Null if there is no memory.
    pub(super) fn allocate_slot(&self, access: Access, class: usize, align: usize) -> *mut u8 {
        if let Access::Around(_) = access
            && let Some(slot) = P::slot_at_home(self, access, class)
        {
            return slot;
        }
        let apart = self.shard_of_aligned(class, align);
        match access {
            Access::Cached(_) => P::free_pending(self, access),
            Access::Direct | Access::Around(_) => {}
            Access::Nested => return self.allocate_nested(class, align),
            Access::Outside => {
                let block = self.parts.allocate_outside(&self.os, CLASS[class].size as usize, align);
                if block.is_null() {
                    // No room there. Use the heap: a child that finds it half changed is better than a failed request.
                    return self.allocate_slot(Access::Direct, class, align);
                }
                return block;
            }
        }
        let take = || match (access, apart) {
            // SAFETY: the access says that the cache is entered.
            (Access::Cached(cache), None) => unsafe { self.parts.pop_or_refill(&self.supply(), cache, class) },
            _ => self.take_slot(apart.unwrap_or(0), class, Wait::Yes),
        };
        let slot = take();
        if !slot.is_null() {
            return slot;
        }
        self.relieve(access.own());
        take()
    }

    /// A slot from a shard's bin, without a cache. Null if there is no memory, or with [`Wait::No`] if a lock is held.
    pub(super) fn take_slot(&self, shard: u8, class: usize, wait: Wait) -> *mut u8 {
        let mut slot = [null_mut()];
        let bin = self.parts.bin(shard as usize, class);
        bin.take(&self.supply(), class, shard, &mut slot, wait);
        slot[0]
    }

    /// In a signal handler: a slot from a bin whose lock is free, else a mapping of its own.
    fn allocate_nested(&self, class: usize, align: usize) -> *mut u8 {
        // A slot of a class a little larger costs less than a mapping.
        for class in class..=(class + 2).min(CLASSES) {
            if !(CLASS[class].size as usize).is_multiple_of(align) {
                continue;
            }
            let shards = match self.shard_of_aligned(class, align) {
                Some(shard) => shard..shard + 1,
                None => 0..u8_of(self.known_shards()),
            };
            for shard in shards {
                let slot = self.take_slot(shard, class, Wait::No);
                if !slot.is_null() {
                    return slot;
                }
            }
        }
        self.parts.allocate_outside(&self.os, CLASS[class].size as usize, align)
    }

    /// A large block, and whether it is known to read as zero.
    pub(super) fn allocate_large(&self, access: Access, size: usize, align: usize) -> (*mut u8, bool) {
        self.allocate_large_as(access, size, align, false)
    }

    /// The same; `zeroed` says that it is made to read as zero.
    pub(super) fn allocate_large_as(&self, access: Access, size: usize, align: usize, zeroed: bool) -> (*mut u8, bool) {
        if let Some(block) = P::large_at_home(self, access, size, align) {
            return block;
        }
        // A size that no kernel can map fails at once, without returning all free memory first.
        if !is_possible(size, align) {
            return (null_mut(), false);
        }
        if let Access::Outside = access {
            let block = self.parts.allocate_outside(&self.os, size, align);
            if block.is_null() {
                return self.allocate_large(Access::Direct, size, align);
            }
            return (block, true);
        }
        let mut made = self.arena.allocate_large(&self.os, size, align, self.now(), access.wait());
        if made.is_none() {
            if !access.may_wait() {
                return (self.parts.allocate_outside(&self.os, size, align), true);
            }
            self.relieve(access.own());
            made = self.arena.allocate_large(&self.os, size, align, self.now(), Wait::Yes);
        }
        let Some(block) = made else {
            return (null_mut(), false);
        };
        if block.zero
            && let Some(head) = self.arena.granule_of(block.start)
        {
            // SAFETY: the block was made just now.
            unsafe { self.arena.settle_large(&self.os, head, zeroed) };
        }
        (block.start as *mut u8, block.zero)
    }
}
