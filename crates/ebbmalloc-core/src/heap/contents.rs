//! The contents of very long blocks: the kernel zeroes and moves them, so that what the program never touched is
//! not touched for it. An extent that counts as dirty may be a block that was never used, of any length.

use super::{Access, Heap};
use crate::os::{Os, PageRun};
use crate::size::{SMALL_MAX, class_of};

/// From so many bytes on the kernel does it. Below, writing to pages that are most likely there costs less than
/// dropping them and faulting them in again.
pub const BY_KERNEL_FROM: usize = 64 << 20;

impl<O: Os> Heap<O> {
    /// A block that reads as zero.
    pub fn allocate_zeroed(&self, access: Access, size: usize) -> *mut u8 {
        if size > SMALL_MAX {
            let (block, zero) = self.allocate_large_as(access, size, 1, true);
            if !zero && !block.is_null() {
                // SAFETY: the block is ours and at least `size` bytes long.
                unsafe { self.zero(block, size) };
            }
            return block;
        }
        let block = self.allocate_slot(access, class_of(size), 1);
        if !block.is_null() {
            // SAFETY: the block is ours and at least `size` bytes long.
            unsafe { block.write_bytes(0, size) };
        }
        block
    }

    /// Makes `bytes` bytes at `start` read as zero.
    ///
    /// # Safety
    /// They lie in one block, and the caller alone uses them.
    pub unsafe fn zero(&self, start: *mut u8, bytes: usize) {
        // SAFETY: the fn contract; the inner part is whole pages of the same bytes, and what is written is within.
        unsafe {
            if bytes < BY_KERNEL_FROM || !self.is_from_kernel(start as usize) {
                return start.write_bytes(0, bytes);
            }
            let page_bytes = self.os.page_bytes();
            let before = (start as usize).next_multiple_of(page_bytes) - start as usize;
            let inner = (bytes - before) / page_bytes * page_bytes;
            start.write_bytes(0, before);
            start.add(before + inner).write_bytes(0, bytes - before - inner);
            let run = PageRun { start: start as usize + before, bytes: inner };
            if self.arena.discard(&self.os, &[run]).refused_bytes > 0 {
                start.add(before).write_bytes(0, inner);
            }
        }
    }

    /// Copies `bytes` bytes of a block that ends to the beginning of another one.
    ///
    /// # Safety
    /// Both blocks are at least that long, apart, and the caller's alone. What the first holds afterwards is not known.
    pub unsafe fn hand_over(&self, from: *mut u8, to: *mut u8, bytes: usize) {
        let mut moved = 0;
        let is_own = |block: *mut u8| {
            (block as usize).is_multiple_of(self.os.page_bytes()) && self.is_from_kernel(block as usize)
        };
        // SAFETY: the fn contract: whole pages of both blocks, which begin at pages; the rest is copied.
        unsafe {
            if bytes >= BY_KERNEL_FROM && is_own(from) && is_own(to) {
                let whole = bytes / self.os.page_bytes() * self.os.page_bytes();
                if self.os.move_pages(from as usize, to as usize, whole).is_ok() {
                    moved = whole;
                }
            }
            core::ptr::copy_nonoverlapping(from.add(moved), to.add(moved), bytes - moved);
        }
    }

    /// Whether the memory at `address` is private memory of the kernel's: not from a program's hooks.
    fn is_from_kernel(&self, address: usize) -> bool {
        self.arena.granule_of(address).is_some()
            || self.parts.bins.explicit.find(address).is_none_or(|arena| arena.hooks().is_null())
    }
}
