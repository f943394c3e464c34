//! What may change of a block without moving it, and what a request would get: for callers who keep
//! pointers to a block, or choose sizes by the space available.

use super::{Access, Heap};
use crate::arena::granule::Granule;
use crate::cache::explicit::ExplicitArena;
use crate::os::Os;
use crate::size::{CLASS, SMALL_MAX, class_aligned, is_possible};

impl<O: Os> Heap<O> {
    /// Usable bytes of a block that is asked for with `size` bytes aligned to `align`, a power of two; 0 if there can be
    /// no such block.
    pub fn usable_of_request(&self, size: usize, align: usize) -> usize {
        if let Some(class) = class_aligned(size, align) {
            return CLASS[class].size as usize;
        }
        if !is_possible(size, align) {
            return 0;
        }
        size.max(1).next_multiple_of(self.os.page_bytes())
    }

    /// Makes a block at least `least` bytes long where it is, and up to `most` if there is room;
    /// shrinks it if it is longer than that. Returns its usable bytes afterwards: fewer than `least`
    /// if it could not grow.
    ///
    /// A slot keeps its size, and a large block stays one: it is not made shorter than the smallest
    /// request that is served by a large block.
    ///
    /// # Safety
    /// `block` came from this heap and is live, and no other thread resizes or frees it meanwhile.
    pub unsafe fn resize_in_place(&self, access: Access, block: *mut u8, least: usize, most: usize) -> usize {
        // SAFETY: the block is live and the caller's (fn contract).
        let old = unsafe { self.usable_size(block) };
        let Some((head, arena)) = self.large_block(block as usize) else {
            return old;
        };
        // SAFETY: the descriptor of a live large block.
        let is_slot = unsafe { self.promised_bytes(head) }.is_some();
        if is_slot || !access.may_wait() || most <= SMALL_MAX {
            return old;
        }
        // The longest first; where that has no room, what must be.
        for goal in [most, least.max(SMALL_MAX + 1)] {
            let changes = goal > old || goal.next_multiple_of(self.os.page_bytes()) < old;
            if !is_possible(goal, 1) || !changes || goal != most && goal < old {
                continue;
            }
            // SAFETY: a live large block, which the caller alone changes.
            if unsafe { self.resize_large(head, arena, goal) } {
                // SAFETY: the block is live and the caller's, at its new size.
                return unsafe { self.usable_size(block) };
            }
        }
        old
    }

    /// # Safety
    /// `head` is the descriptor of a live large block that the caller alone changes.
    unsafe fn resize_large(&self, head: *mut Granule, arena: Option<&ExplicitArena>, size: usize) -> bool {
        match arena {
            // SAFETY: the block is live and the caller's (fn contract), and `head` is its descriptor.
            None => unsafe { self.arena.resize_large(&self.os, head, size, self.now()) },
            // SAFETY: the block is live and the caller's (fn contract), and `head` is its descriptor in this arena.
            Some(arena) => self.with_arena(arena, |supply| unsafe {
                let now = supply.tick;
                supply.arena.resize_large(supply.os, head, size, now)
            }),
        }
    }
}
