//! The fast paths of malloc and free. A face inlines them: 21 and 25 instructions, with the face's own. They get the
//! thread's cache, the byte map and the slow paths from an [`Instance`]; `runtime/entry.rs` has the only one.

use super::cache::Cache;
use crate::size::QUICK_MAX;
use core::ptr::NonNull;

/// The parts of a process's allocator that the fast paths use.
pub trait Instance {
    /// What the caller of [`free`] says of the block besides; the fast path passes it on.
    type Said: Copy;

    /// The cache of the calling thread. A thread without one gets a static cache that is always empty and full.
    fn cache() -> &'static Cache;

    /// The class of the slab that `address` lies in, 0 where there is none; `None` outside the first region
    /// ([`Arena::class_in_first_region`](crate::arena::Arena::class_in_first_region)).
    fn quick_class(address: usize) -> Option<usize>;

    /// Frees a block that the cache did not take; `class` is its entry in the byte map, 0 if there is none.
    ///
    /// # Safety
    /// As for [`free`].
    unsafe fn free_slow(block: *mut u8, class: usize, said: Self::Said);

    /// Frees a block outside the first region, or null. Apart, so that the fast path need not set up a class.
    ///
    /// # Safety
    /// As for [`free`].
    unsafe fn free_elsewhere(block: *mut u8, said: Self::Said);
}

/// A block of at least `size` bytes, aligned to 16, from the thread's cache. `None` if the cache has none: then the caller
/// takes the slow path.
#[inline(always)]
pub fn malloc<I: Instance>(size: usize) -> Option<NonNull<u8>> {
    if size > QUICK_MAX {
        return None;
    }
    I::cache().pop_quick(size)
}

/// Frees a block; does nothing for null. Ends the process if `block` is found to be no live block.
///
/// # Safety
/// `block` is null or came from this instance, and is not used any more.
#[inline(always)]
pub unsafe fn free<I: Instance>(block: *mut u8, said: I::Said) {
    // SAFETY: the block is null or from here, and not used any more (fn contract). Each arm passes it on exactly once.
    unsafe {
        match I::quick_class(block as usize) {
            Some(class) if I::cache().push(class, block) => {}
            Some(class) => I::free_slow(block, class, said),
            None => I::free_elsewhere(block, said),
        }
    }
}
