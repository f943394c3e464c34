//! The requests of observed threads: served from the thread's real cache, then counted, filled and
//! sampled. See [`super::observer`].
//!
//! Called by `super::entry` where the fast path has missed. A signal handler that comes in between is
//! served as in any other thread: the real cache says whether its owner is inside.

use super::instance::HEAP;
use super::lookup::quick_class;
use super::observer::{JUNK_ALLOCATED, JUNK_DEALLOCATED, JUNK_FREED, JUNK_NEW, Observer, ZERO};
use super::thread::with_access;
use crate::heap::Access;
use crate::size::{CLASS, SMALL_MAX, class_aligned, class_of};

/// What a request asks of the contents of its block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Any,
    Zero,
}

/// [`super::entry::malloc`].
#[inline(never)]
pub(super) fn malloc(observer: &Observer, size: usize) -> *mut u8 {
    let class = if size <= SMALL_MAX { class_of(size) } else { 0 };
    allocate(observer, class, Contents::Any, |access| {
        HEAP.allocate(access, size)
    })
}

/// [`super::entry::malloc_zeroed`].
#[inline(never)]
pub(super) fn malloc_zeroed(observer: &Observer, size: usize) -> *mut u8 {
    if size > SMALL_MAX {
        return allocate(observer, 0, Contents::Zero, |access| {
            HEAP.allocate_zeroed(access, size)
        });
    }
    let class = class_of(size);
    let block = allocate(observer, class, Contents::Zero, |access| {
        HEAP.allocate(access, size)
    });
    if !block.is_null() {
        // SAFETY: the block is ours and at least `size` bytes long.
        unsafe { block.write_bytes(0, size) };
    }
    block
}

/// [`super::entry::memalign`].
#[inline(never)]
pub(super) fn memalign(observer: &Observer, align: usize, size: usize) -> *mut u8 {
    let class = class_aligned(size, align).unwrap_or(0);
    allocate(observer, class, Contents::Any, |access| {
        HEAP.allocate_aligned(access, size, align)
    })
}

/// A block of `class` (0: a large one) from the thread's cache, or else by `otherwise`.
#[inline(always)]
fn allocate(
    observer: &Observer,
    class: usize,
    contents: Contents,
    otherwise: impl FnOnce(Access) -> *mut u8,
) -> *mut u8 {
    let bytes = CLASS[class].size as usize;
    // No stack of class 0 ever holds anything.
    let block = match observer.cache().pop(class) {
        Some(slot) => slot.as_ptr(),
        None => with_access(otherwise),
    };
    if block.is_null() {
        return block;
    }
    let bytes = match bytes {
        // SAFETY: allocated just now.
        0 => unsafe { HEAP.usable_size(block) },
        bytes => bytes,
    };
    observer.count_new(bytes);
    if contents == Contents::Any && observer.flags() & (JUNK_ALLOCATED | ZERO) != 0 {
        fill_new(observer, block, bytes);
    }
    block
}

#[cold]
fn fill_new(observer: &Observer, block: *mut u8, bytes: usize) {
    let zero = observer.flags() & ZERO != 0;
    // SAFETY: the block is ours and that long.
    unsafe { block.write_bytes(if zero { 0 } else { JUNK_NEW }, bytes) };
}

/// [`super::entry::free`]; `block` is not null.
///
/// # Safety
/// As there.
#[inline(never)]
pub(super) unsafe fn free(observer: &Observer, block: *mut u8) {
    let class = quick_class(block as usize).unwrap_or(0);
    let bytes = match class {
        // SAFETY: the caller's promise.
        0 => unsafe { HEAP.usable_size(block) },
        class => CLASS[class].size as usize,
    };
    observer.count_freed(bytes);
    if observer.flags() & JUNK_DEALLOCATED != 0 {
        // SAFETY: nobody uses the block any more, and it is not free yet.
        unsafe { block.write_bytes(JUNK_FREED, bytes) };
    }
    if !observer.cache().push(class, block) {
        // SAFETY: the caller's promise.
        with_access(|access| unsafe { HEAP.free(access, block) });
    }
}

/// [`super::entry::realloc`] of a block that the quick look-up does not know.
///
/// # Safety
/// As there.
#[inline(never)]
pub(super) unsafe fn realloc(observer: &Observer, block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    let old = unsafe { HEAP.usable_size(block) };
    // SAFETY: the caller's promise.
    let new = with_access(|access| unsafe { HEAP.reallocate(access, block, size) });
    if new.is_null() {
        return new;
    }
    // SAFETY: live since just now.
    let bytes = unsafe { HEAP.usable_size(new) };
    observer.count_freed(old);
    observer.count_new(bytes);
    if bytes > old && observer.flags() & (JUNK_ALLOCATED | ZERO) != 0 {
        fill_new(observer, new.wrapping_add(old), bytes - old);
    }
    new
}
