//! Blocks that come back, and what can be asked of a block: free, realloc, usable size.

use super::explicit::PlaceIn;
use super::guarded::By;
use super::{Access, Heap, Pending};
use crate::arena::granule::{Granule, Kind};
use crate::base::corrupt::{Corruption, corruption};
use crate::base::lock::Wait;
use crate::cache::cache::{Cache, Entered};
use crate::cache::explicit::ExplicitArena;
use crate::cache::registry::LEFT;
use crate::os::Os;
use crate::size::{CLASS, GRANULE, SMALL_MAX, class_of};
use crate::slab::bin::Age;
use crate::slab::shape::Shape;
use crate::slab::slab::Slab;
use core::ptr::null_mut;
use core::sync::atomic::{Ordering, fence};

/// Where a block lives.
enum Place<'a> {
    /// In an explicit arena, of whatever kind.
    Explicit(&'a ExplicitArena),
    Slot(usize),
    /// So many neighbouring slots of the slab that this is the head of.
    Lent(*mut Granule, usize),
    Large(*mut Granule),
    Outside(usize),
    /// A sampled guard's block of so many bytes.
    Guarded(usize),
}

impl<O: Os> Heap<O> {
    /// Takes a block back. Ends the process if `block` is no live block.
    ///
    /// # Safety
    /// `block` came from this heap and is not used any more.
    pub unsafe fn free(&self, access: Access, block: *mut u8) {
        match self.place(block as usize) {
            Place::Guarded(_) => {
                let freed = self.parts.guarded.free(&self.os, block as usize, By::UNKNOWN);
                freed.unwrap_or_else(|what| corruption(&self.os, what, block as usize));
            }
            Place::Outside(_) => {
                if !self.parts.outside.free(&self.os, block as usize) {
                    corruption(&self.os, Corruption::DoubleFree, block as usize);
                }
            }
            // SAFETY: the block is the caller's and at least a pointer long.
            _ if matches!(access, Access::Outside) => unsafe { self.postpone(block) },
            // SAFETY: the byte map says `class`.
            Place::Slot(class) => unsafe { self.free_slot(access, class, block) },
            Place::Lent(head, _) => {
                let (supply, wait) = (self.supply(), access.wait());
                // SAFETY: `place` found the block in the slab; it is the caller's.
                unsafe {
                    if !self.parts.bins.take_back(&supply, head, block, wait) {
                        self.postpone(block);
                    }
                }
            }
            Place::Large(granule) => {
                let wait = access.wait();
                // SAFETY: `granule` is the descriptor of the block's granule.
                let forgotten = unsafe { self.forget_sample(granule, wait) };
                let oversize = self.parts.oversize.load(Ordering::Relaxed);
                if wait == Wait::Yes && oversize != 0 {
                    // SAFETY: `granule` is the descriptor of the block's granule.
                    let done =
                        unsafe { self.arena.return_large(&self.os, granule, block as usize, oversize, self.now()) };
                    if let Some(returned) = done {
                        self.counters.returned_bytes.fetch_add(returned as u64, Ordering::Relaxed);
                        return;
                    }
                }
                // SAFETY: `granule` is the descriptor of the block's granule.
                if !unsafe { forgotten && self.arena.free_large(&self.os, granule, block as usize, self.now(), wait) } {
                    // SAFETY: the block is the caller's and at least a pointer long.
                    unsafe { self.postpone(block) };
                }
            }
            // SAFETY: the block is live and the caller's (fn contract), and lies in this arena, as `place` found.
            Place::Explicit(arena) => unsafe { self.free_in(arena, access, block) },
        }
    }

    unsafe fn free_slot(&self, access: Access, class: usize, block: *mut u8) {
        let supply = self.supply();
        match access {
            Access::Cached(cache) if cache.keeps_heap_slots() => {
                self.free_pending(access);
                // SAFETY: the access says that the cache is entered; the byte map says `class`.
                unsafe { cache.push_or_flush(&supply, &self.parts.bins, class, block) };
            }
            _ => {
                // SAFETY: the byte map says `class`.
                if unsafe { self.parts.bins.put(&supply, class, &[block], Age::Fresh, access.wait()) } == 0 {
                    // SAFETY: the block is the caller's and at least a pointer long.
                    unsafe { self.postpone(block) };
                }
            }
        }
    }

    /// At the end of the process: ends it with a line if the calling thread's cache, or one that a thread left, holds what
    /// was freed wrongly. Waits for nothing: other threads still run.
    pub fn check_cache(&self, own: &Cache) {
        // Other threads may leave more meanwhile.
        let left = (0..LEFT).map_while(|_| self.parts.caches.take_left());
        // SAFETY: a cache lives until its owner unmakes it, which is the calling thread from here on, and does not.
        let left = left.map(|cache| unsafe { cache.as_ref() });
        for cache in core::iter::once(own).chain(left) {
            if cache.enter() == Entered::Mine {
                // SAFETY: entered just now.
                unsafe { cache.put_back_at_exit(&self.supply(), &self.parts.bins) };
                cache.leave();
            }
        }
    }

    /// The program asks for huge pages at `address`, which may be anywhere: in a block, they go with it.
    pub fn note_huge_pages(&self, address: usize, bytes: usize) {
        if self.arena.granule_of(address).is_some() {
            self.arena.note_huge_pages(&self.os, address, bytes);
        }
    }

    /// In a signal handler that found the locks taken: remembers the block for later.
    ///
    /// # Safety
    /// The block is the caller's to free.
    pub(super) unsafe fn postpone(&self, block: *mut u8) {
        let pending = block.cast::<Pending>();
        let mut head = self.parts.pending.load(Ordering::Relaxed);
        loop {
            // SAFETY: the block is live until it is freed for good, and at least 16 bytes long.
            unsafe { pending.write(Pending { next: head }) };
            match self.parts.pending.compare_exchange_weak(head, pending, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Frees what signal handlers postponed. Called by every slow path that may wait.
    pub(super) fn free_pending(&self, access: Access) {
        if self.parts.pending.load(Ordering::Relaxed).is_null() || !access.may_wait() {
            return;
        }
        let mut at = self.parts.pending.swap(null_mut(), Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: the list is ours since the swap; its links are in live blocks.
            unsafe {
                let block = at.cast::<u8>();
                at = (*at).next;
                self.free(Access::Direct, block);
            }
        }
    }

    /// Bytes that may be used at `block`. Ends the process if it is no live block.
    ///
    /// # Safety
    /// `block` came from this heap and is live.
    pub unsafe fn usable_size(&self, block: *const u8) -> usize {
        match self.place(block as usize) {
            Place::Slot(class) => CLASS[class].size as usize,
            // SAFETY: every slab's descriptor says its class.
            Place::Lent(head, slots) => unsafe { slots * CLASS[(*head).class as usize].size as usize },
            // SAFETY: `granule` is the descriptor of the block's granule.
            Place::Large(granule) => unsafe {
                let bytes = self.arena.large_size(&self.os, granule, block as usize);
                self.promised_bytes(granule).unwrap_or(bytes)
            },
            Place::Outside(bytes) | Place::Guarded(bytes) => bytes,
            // SAFETY: the block is live (fn contract), and lies in this arena, as `place` found.
            Place::Explicit(arena) => unsafe { self.usable_size_in(arena, block) },
        }
    }

    /// Makes a block larger or smaller, in place where that goes, by moving its pages, or by a copy.
    /// Null if there is no memory; the block is unchanged then.
    ///
    /// # Safety
    /// `block` came from this heap and is live; afterwards only the result is, unless it is null.
    pub unsafe fn reallocate(&self, access: Access, block: *mut u8, size: usize) -> *mut u8 {
        if let Place::Explicit(arena) = self.place(block as usize) {
            // SAFETY: the block is live and the caller's (fn contract), and lies in this arena, as `place` found.
            return unsafe { self.reallocate_in(arena, access, block, size) };
        }
        // SAFETY: the block is live and the caller's (fn contract).
        let old = unsafe { self.usable_size(block) };
        if let Place::Large(granule) = self.place(block as usize)
            && access.may_wait()
            && size > SMALL_MAX
        {
            // SAFETY: the block is live, so its descriptor is that of a large block.
            unsafe {
                self.forget_sample(granule, Wait::Yes);
                if self.arena.resize_large(&self.os, granule, size, self.now()) {
                    if size > old {
                        self.arena.ask_for_huge_pages(&self.os, granule, false);
                    }
                    return block;
                }
                if size > old
                    && let Some(moved) = self.arena.move_large(&self.os, granule, size, self.now())
                {
                    if let Some(head) = self.arena.granule_of(moved) {
                        self.arena.ask_for_huge_pages(&self.os, head, false);
                    }
                    return moved as *mut u8;
                }
            }
        }
        // A shrinking slot stays where it is unless half of it would be waste.
        if size <= old && size > old / 2 && old <= SMALL_MAX {
            return block;
        }
        if size <= SMALL_MAX && old <= SMALL_MAX && CLASS[class_of(size)].size as usize == old {
            return block;
        }
        let new = self.allocate(access, size);
        if !new.is_null() {
            // SAFETY: both blocks are live and at least this long, and they are not the same.
            unsafe {
                self.hand_over(block, new, old.min(size));
                self.free(access, block);
            }
        }
        new
    }

    /// The descriptor of the large block at `address` and the explicit arena that it is in; `None` if the
    /// block there is another kind. Ends the process if there is none.
    pub(super) fn large_block(&self, address: usize) -> Option<(*mut Granule, Option<&ExplicitArena>)> {
        match self.place(address) {
            Place::Large(granule) => Some((granule, None)),
            Place::Explicit(arena) => match self.place_in(arena, address) {
                PlaceIn::Large(granule) => Some((granule, Some(arena))),
                PlaceIn::Slot(_) => None,
            },
            Place::Slot(_) | Place::Lent(..) | Place::Outside(_) | Place::Guarded(_) => None,
        }
    }

    /// Where the block at `address` lives. Ends the process if it is nowhere.
    fn place(&self, address: usize) -> Place<'_> {
        let class = self.arena.class_of(address);
        if class != 0 {
            return Place::Slot(class);
        }
        match self.arena.granule_of(address) {
            // SAFETY: every granule of a region has a descriptor.
            Some(granule) => match unsafe { (*granule).kind } {
                Kind::Slab => self.place_in_lender(granule, address),
                Kind::Large if address.is_multiple_of(GRANULE) => Place::Large(granule),
                // Where addresses were given up the kernel may have put a block from outside.
                kind => match self.parts.outside.size(address) {
                    Some(bytes) => Place::Outside(bytes),
                    None => corruption(&self.os, kind.misuse(), address),
                },
            },
            None if self.parts.guarded.owns(address) => {
                let size = self.parts.guarded.size(address);
                Place::Guarded(size.unwrap_or_else(|what| corruption(&self.os, what, address)))
            }
            None => match self.parts.bins.explicit.find(address) {
                Some(arena) => Place::Explicit(arena),
                None => match self.parts.outside.size(address) {
                    Some(bytes) => Place::Outside(bytes),
                    None => corruption(&self.os, Corruption::ForeignPointer, address),
                },
            },
        }
    }

    /// Where the block at `address` is, in a slab without a class in the byte map: one that lends.
    fn place_in_lender(&self, head: *mut Granule, address: usize) -> Place<'_> {
        // Pairs with the release store of 0 to the byte map: the bitmap of tails is there.
        fence(Ordering::Acquire);
        // SAFETY: `head` is a slab's descriptor, and `address` lies in its first granule, which is all of
        // a slab that lends.
        unsafe {
            let class = (*head).class as usize;
            let shape = Shape::new(class, self.os.page_bytes().trailing_zeros());
            match Slab(head).slots_at(shape, address) {
                Some(1) => Place::Slot(class),
                Some(slots) => Place::Lent(head, slots),
                None => corruption(&self.os, Corruption::InteriorPointer, address),
            }
        }
    }
}
