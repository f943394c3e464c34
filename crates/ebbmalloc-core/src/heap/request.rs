//! Requests: blocks of a size, zeroed or aligned or not.

use super::heap::{Access, HeapWith, Parts};
use crate::base::exact::u8_of;
use crate::base::lock::Wait;
use crate::os::Os;
use crate::size::{CLASSES, SMALL_MAX, class_of, is_possible};
use core::ptr::null_mut;

impl<O: Os, P: Parts<O>> HeapWith<O, P> {
    /// A block of at least `size` bytes, aligned to 16. Null if there is no memory.
    pub fn allocate(&self, access: Access, size: usize) -> *mut u8 {
        if size <= SMALL_MAX {
            self.allocate_slot(access, class_of(size))
        } else {
            self.allocate_large(access, size, 1).0
        }
    }

    pub(super) fn allocate_slot(&self, access: Access, class: usize) -> *mut u8 {
        let supply = self.supply();
        if let Access::Around(_) = access
            && let Some(slot) = P::slot_at_home(self, access, class)
        {
            return slot;
        }
        match access {
            Access::Cached(cache) => {
                P::free_pending(self, access);
                // SAFETY: the access says that the cache is entered.
                let mut slot = unsafe { self.parts.pop_or_refill(&supply, cache, class) };
                if slot.is_null() {
                    self.relieve(Some(cache));
                    // SAFETY: the access says that the cache is entered.
                    slot = unsafe { self.parts.pop_or_refill(&supply, cache, class) };
                }
                slot
            }
            Access::Direct | Access::Around(_) => {
                let mut slot = [null_mut()];
                self.parts.bin(0, class).take(&supply, class, 0, &mut slot, Wait::Yes);
                if slot[0].is_null() {
                    self.relieve(None);
                    self.parts.bin(0, class).take(&supply, class, 0, &mut slot, Wait::Yes);
                }
                slot[0]
            }
            Access::Nested => self.allocate_nested(class),
            Access::Outside => {
                let block = self.parts.allocate_outside(
                    &self.os,
                    crate::size::CLASS[class].size as usize,
                    1,
                );
                if block.is_null() {
                    // No room there: better a child that finds the heap half changed.
                    return self.allocate_slot(Access::Direct, class);
                }
                block
            }
        }
    }

    /// In a signal handler: from whatever bin is free, else a mapping of its own.
    fn allocate_nested(&self, class: usize) -> *mut u8 {
        let supply = self.supply();
        // A slot of a class a little larger costs less than a mapping.
        for class in class..=(class + 2).min(CLASSES) {
            for shard in 0..self.known_shards() {
                let mut slot = [null_mut()];
                if self.parts.bin(shard, class).take(
                    &supply,
                    class,
                    u8_of(shard),
                    &mut slot,
                    Wait::No,
                ) == 1
                {
                    return slot[0];
                }
            }
        }
        self.parts.allocate_outside(&self.os, crate::size::CLASS[class].size as usize, 1)
    }

    /// A large block, and whether it is known to read as zero.
    pub(super) fn allocate_large(
        &self,
        access: Access,
        size: usize,
        align: usize,
    ) -> (*mut u8, bool) {
        if let Some(block) = P::large_at_home(self, access, size, align) {
            return block;
        }
        // What no kernel can give is no reason to give everything back first.
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
            let own = if let Access::Cached(cache) = access { Some(cache) } else { None };
            if !access.may_wait() {
                return (self.parts.allocate_outside(&self.os, size, align), true);
            }
            self.relieve(own);
            made = self.arena.allocate_large(&self.os, size, align, self.now(), Wait::Yes);
        }
        made.map_or((null_mut(), false), |block| (block.start as *mut u8, block.zero))
    }
}
