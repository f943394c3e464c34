//! The calls that the faces make. Each tries the thread's cache first; what that cannot do is a cold
//! function of its own.

use super::instance::HEAP;
use super::lookup::quick_class;
use super::observed;
use super::thread::{current, observer, with_access, with_own_cache};
use core::ptr::NonNull;

use crate::size::{CLASS, QUANTUM, QUICK_MAX, SMALL_MAX, class_aligned, class_of};

/// A block of at least `size` bytes, aligned to 16; null if there is no memory.
#[inline(always)]
pub fn malloc(size: usize) -> *mut u8 {
    match malloc_from_cache(size) {
        Some(block) => block.as_ptr(),
        None => malloc_missed(size),
    }
}

/// The part of [`malloc`] that is worth inlining into a face: `None` says nothing about memory, only
/// that [`malloc_rest`] must be asked.
#[inline(always)]
pub fn malloc_from_cache(size: usize) -> Option<NonNull<u8>> {
    if size > QUICK_MAX {
        return None;
    }
    current().pop_quick(size)
}

/// The rest of [`malloc`]: sizes above the quick table, observed threads, and everything that the cache
/// cannot serve at once. To be inlined into the cold side of a face, which needs no frame for the first.
#[inline(always)]
pub fn malloc_rest(size: usize) -> *mut u8 {
    let block = if size > SMALL_MAX {
        None
    } else if size > QUICK_MAX {
        current().pop_unrationed(class_of(size))
    } else {
        observer().and_then(|observer| observed::malloc_quick(observer, size))
    };
    match block {
        Some(block) => block.as_ptr(),
        None => malloc_slow(size),
    }
}

/// [`malloc_rest`], for callers that it is not inlined into.
#[inline(never)]
fn malloc_missed(size: usize) -> *mut u8 {
    malloc_rest(size)
}

#[inline(never)]
fn malloc_slow(size: usize) -> *mut u8 {
    if let Some(observer) = observer() {
        return observed::malloc(observer, size);
    }
    with_access(|access| HEAP.allocate(access, size))
}

/// A block of at least `size` bytes that reads as zero; null if there is no memory.
pub fn malloc_zeroed(size: usize) -> *mut u8 {
    let slot = if size <= QUICK_MAX {
        current().pop_quick(size)
    } else if size <= SMALL_MAX {
        current().pop_unrationed(class_of(size))
    } else {
        None
    };
    if let Some(slot) = slot {
        // SAFETY: the slot is ours and at least `size` bytes long.
        unsafe { slot.write_bytes(0, size) };
        return slot.as_ptr();
    }
    if let Some(observer) = observer() {
        return observed::malloc_zeroed(observer, size);
    }
    with_access(|access| HEAP.allocate_zeroed(access, size))
}

/// A block of at least `size` bytes aligned to `align`, a power of two; null if there is no memory.
pub fn memalign(align: usize, size: usize) -> *mut u8 {
    if align <= QUANTUM {
        return malloc(size);
    }
    if let Some(class) = class_aligned(size, align)
        && let Some(slot) = current().pop_unrationed(class)
    {
        return slot.as_ptr();
    }
    if let Some(observer) = observer() {
        return observed::memalign(observer, align, size);
    }
    with_access(|access| HEAP.allocate_aligned(access, size, align))
}

/// Takes a block back; null is nothing. Ends the process if `block` is no live block.
///
/// # Safety
/// `block` is null or came from here, and is not used any more.
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match quick_class(block as usize) {
            Some(class) if current().push(class, block) => {}
            Some(class) => free_rest(block, class),
            None => free_slow(block),
        }
    }
}

/// What the cache did not take; `class` is what the byte map says.
#[inline(never)]
unsafe fn free_rest(block: *mut u8, class: usize) {
    if let Some(observer) = observer()
        && observed::free_quick(observer, block, class)
    {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { free_slow(block) };
}

#[inline(never)]
unsafe fn free_slow(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // A thread that is on an explicit arena keeps slots of that as well.
    if let Some(class) = HEAP.class_at_home(current(), block as usize)
        && current().push(class, block)
    {
        return;
    }
    if let Some(observer) = observer() {
        // SAFETY: the caller's promise.
        return unsafe { observed::free(observer, block) };
    }
    // SAFETY: the caller's promise.
    with_access(|access| unsafe { HEAP.free(access, block) });
}

/// Takes a block of known size back.
///
/// # Safety
/// As for [`free`], and the block was asked for with `size` bytes.
#[inline(always)]
pub unsafe fn free_sized(block: *mut u8, size: usize) {
    let _ = size;
    // SAFETY: the caller's promise. The look-up is one load, and finds a wrong pointer.
    unsafe { free(block) };
}

/// Makes a block larger or smaller; null if there is no memory, and the block is unchanged then.
///
/// # Safety
/// `block` came from here and is live; afterwards only the result is, unless that is null.
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    let class = quick_class(block as usize).unwrap_or(0);
    if class != 0 && size <= SMALL_MAX {
        let old = CLASS[class].size as usize;
        // Stay where the class is the same, or a smaller block would not save half.
        if size <= old && (size > old / 2 || class == 1) {
            return block;
        }
        let new = malloc(size);
        if !new.is_null() {
            // SAFETY: both blocks are live, apart, and at least this long.
            unsafe {
                core::ptr::copy_nonoverlapping(block, new, old.min(size));
                free(block);
            }
        }
        return new;
    }
    if let Some(observer) = observer() {
        // SAFETY: the caller's promise.
        return unsafe { observed::realloc(observer, block, size) };
    }
    // SAFETY: the caller's promise.
    with_access(|access| unsafe { HEAP.reallocate(access, block, size) })
}

/// Bytes that may be used at `block`; 0 for null. Ends the process if `block` is no live block.
///
/// # Safety
/// `block` is null or a live block from here.
pub unsafe fn usable_size(block: *const u8) -> usize {
    if block.is_null() {
        return 0;
    }
    match quick_class(block as usize) {
        Some(class) if class != 0 => CLASS[class].size as usize,
        // SAFETY: the caller's promise.
        _ => unsafe { HEAP.usable_size(block) },
    }
}

/// Returns all that is free to the kernel, other threads' caches included. True if anything went.
pub fn trim() -> bool {
    with_own_cache(|own| HEAP.trim(own))
}
