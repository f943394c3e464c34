//! The fast paths of malloc and free, which a face inlines: 21 and 25 instructions with the face's own. What they need of a
//! process is an [`Instance`]; `runtime/entry.rs` has the one that there is, and the slow paths.

use super::cache::Cache;
use crate::size::QUICK_MAX;
use core::ptr::NonNull;

/// The allocator of a process, as its fast paths see it.
pub trait Instance {
    /// The cache of the calling thread. A thread that has none gets one that always misses.
    fn cache() -> &'static Cache;

    /// The class of the slab that `address` lies in, 0 where there is none; `None` outside the first region
    /// ([`Arena::class_in_first_region`](crate::arena::Arena::class_in_first_region)).
    fn quick_class(address: usize) -> Option<usize>;

    /// Takes a block back that the cache did not take; `class` is what the byte map says, 0 for nothing.
    ///
    /// # Safety
    /// As for [`free`].
    unsafe fn free_slow(block: *mut u8, class: usize);

    /// Takes a block outside the first region back, and null. Apart, so that the fast path makes no class.
    ///
    /// # Safety
    /// As for [`free`].
    unsafe fn free_elsewhere(block: *mut u8);
}

/// A block of at least `size` bytes, aligned to 16, from the thread's cache: `None` says nothing about memory, only that
/// the slow path must be asked.
#[inline(always)]
pub fn malloc<I: Instance>(size: usize) -> Option<NonNull<u8>> {
    if size > QUICK_MAX {
        return None;
    }
    I::cache().pop_quick(size)
}

/// Takes a block back; null is nothing. Ends the process if `block` is no live block.
///
/// # Safety
/// `block` is null or came from this instance, and is not used any more.
#[inline(always)]
pub unsafe fn free<I: Instance>(block: *mut u8) {
    // SAFETY: the block is null or from here, and not used any more (fn contract); wherever it goes it is taken once.
    unsafe {
        match I::quick_class(block as usize) {
            Some(class) if I::cache().push(class, block) => {}
            Some(class) => I::free_slow(block, class),
            None => I::free_elsewhere(block),
        }
    }
}
