//! The requests of observed threads: served from the thread's real cache, then counted, filled and
//! sampled; and requests of sampled threads that a ration did not serve. See [`super::observer`].
//!
//! Called by `super::entry` where the fast path has missed. A signal handler that comes in between is
//! served as in any other thread: the real cache says whether its owner is inside.

use super::access::with_access;
use super::instance::HEAP;
use super::interval;
use super::lookup::quick_class;
use super::observer::{JUNK_ALLOCATED, JUNK_DEALLOCATED, JUNK_FREED, JUNK_NEW, Observer, STATS_INTERVAL, STRICT, ZERO};
use super::profile::record::record;
use crate::cache::cache::Entered;
use crate::cache::explicit::ExplicitArena;
use crate::cache::ration::RATIONED;
use crate::heap::Access;
use crate::size::{CLASS, SMALL_MAX, class_aligned, class_of};
use core::ptr::NonNull;

/// What a request asks of the contents of its block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Any,
    Zero,
}

/// A block for `size` bytes, at most [`QUICK_MAX`], from the thread's real cache, if counting is all that
/// there is to do next to; `None` if [`malloc`] must be asked.
#[inline(always)]
pub(super) fn malloc_quick(observer: &Observer, size: usize) -> Option<NonNull<u8>> {
    let cache = observer.cache();
    if observer.is_sampled_alone() {
        return cache.pop_next_ration(class_of(size));
    }
    if observer.flags() & !STRICT != 0 {
        return None;
    }
    let class = cache.quick_class(size);
    let bytes = CLASS[class].size as usize;
    let left = observer.sampler.left_after(bytes)?;
    let slot = cache.pop(class)?;
    observer.sampler.set_left(left);
    count_new(observer, bytes);
    Some(slot)
}

/// Takes a slot of `class` (0 is none), if counting is all that there is to do next to; false if
/// [`free`] must be asked.
#[inline(always)]
pub(super) fn free_quick(observer: &Observer, slot: *mut u8, class: usize) -> bool {
    // No stack of class 0 takes anything.
    let done = observer.flags() & !STRICT == 0 && observer.cache().push(class, slot);
    if done {
        observer.count_freed(CLASS[class].size as usize);
    }
    done
}

/// [`super::entry::malloc`].
#[inline(never)]
pub(super) fn malloc(observer: &Observer, size: usize) -> *mut u8 {
    let class = if size <= SMALL_MAX { class_of(size) } else { 0 };
    allocate(observer, class, class, Contents::Any, |access| HEAP.allocate(access, size))
}

/// [`super::entry::malloc_zeroed`].
#[inline(never)]
pub(super) fn malloc_zeroed(observer: &Observer, size: usize) -> *mut u8 {
    if size > SMALL_MAX {
        return allocate(observer, 0, 0, Contents::Zero, |access| HEAP.allocate_zeroed(access, size));
    }
    let class = class_of(size);
    let block = allocate(observer, class, class, Contents::Zero, |access| HEAP.allocate(access, size));
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
    let stack = HEAP.class_in_caches(size, align).unwrap_or(0);
    allocate(observer, class, stack, Contents::Any, |access| HEAP.allocate_aligned(access, size, align))
}

/// A block of `class` (0: a large one) from the stack of the thread's cache with the number `stack`, or else by
/// `otherwise`.
#[inline(always)]
fn allocate(
    observer: &Observer,
    class: usize,
    stack: usize,
    contents: Contents,
    otherwise: impl FnOnce(Access) -> *mut u8,
) -> *mut u8 {
    let bytes = CLASS[class].size as usize;
    let rationed = observer.is_sampled_alone() && class <= RATIONED;
    if class != 0
        && let Some(block) = if rationed { take_due(observer, class, bytes) } else { take_sampled(observer, bytes) }
    {
        if contents == Contents::Any && observer.flags() & (JUNK_ALLOCATED | ZERO) != 0 {
            fill_new(observer, block, bytes);
        }
        return block;
    }
    // No stack of class 0 ever holds anything.
    let own = if rationed { 0 } else { stack };
    let block = match observer.cache().pop(own) {
        Some(slot) => slot.as_ptr(),
        None => with_access(otherwise),
    };
    if block.is_null() {
        return block;
    }
    let bytes = match bytes {
        0 => {
            // SAFETY: allocated just now.
            let bytes = unsafe { HEAP.usable_size(block) };
            sample_large(observer, block, bytes);
            bytes
        }
        bytes => bytes,
    };
    count_new(observer, bytes);
    if contents == Contents::Any && observer.flags() & (JUNK_ALLOCATED | ZERO) != 0 {
        fill_new(observer, block, bytes);
    }
    block
}

/// A block of `bytes` bytes, of a size class, if an interval between samples ends with it; counted.
#[inline]
fn take_sampled(observer: &Observer, bytes: usize) -> Option<*mut u8> {
    take_sampled_in(observer, None, bytes)
}

/// The same in `arena`, or where the thread is.
#[inline]
pub fn take_sampled_in(observer: &Observer, arena: Option<&ExplicitArena>, bytes: usize) -> Option<*mut u8> {
    if !observer.sampler.takes(bytes) {
        return None;
    }
    observer.sampler.start_interval();
    allocate_sampled(observer, arena, bytes)
}

/// The same of a rationed class: if none is ahead of the next one to be sampled.
fn take_due(observer: &Observer, class: usize, bytes: usize) -> Option<*mut u8> {
    let cache = observer.cache();
    let due = match cache.enter() {
        Entered::Mine => {
            // A signal handler may have ended the rations since the observer was asked.
            // SAFETY: entered and rationed. Nothing is ahead and nothing in the ration where the number is drawn anew.
            let due = cache.is_rationed()
                && unsafe {
                    let ahead = cache.ahead(class).unwrap_or_else(|| {
                        let ahead = observer.sampler.draw_ahead(bytes);
                        cache.set_ahead(class, Some(ahead));
                        ahead
                    });
                    if ahead == 0 {
                        cache.set_ahead(class, None);
                    }
                    ahead == 0
                };
            cache.leave();
            due
        }
        // Requests that bypass the cache are no part of a ration.
        Entered::Claimed => return take_sampled(observer, bytes),
        Entered::Nested => false,
    };
    if due { allocate_sampled(observer, None, bytes) } else { None }
}

/// Counts a new block of `bytes` usable bytes; statistics may be printed for it.
#[inline(always)]
pub fn count_new(observer: &Observer, bytes: usize) {
    observer.count_new(bytes);
    if observer.flags() & STATS_INTERVAL != 0 {
        interval::count(bytes);
    }
}

/// Counts and samples a block that was allocated otherwise. A slot is counted alone: see
/// [`take_sampled_in`].
///
/// # Safety
/// `block` is a live block of this heap.
pub unsafe fn note_new(observer: &Observer, block: *mut u8) {
    // SAFETY: the block is live, by the fn contract.
    let bytes = unsafe { HEAP.usable_size(block) };
    count_new(observer, bytes);
    if bytes > SMALL_MAX {
        sample_large(observer, block, bytes);
    }
}

/// Samples a block that is large to its user, if an interval between samples ends with it.
fn sample_large(observer: &Observer, block: *mut u8, bytes: usize) {
    if observer.sampler.takes(bytes) {
        observer.sampler.start_interval();
        record(observer, block, bytes, observer.sampler.lg(), false);
    }
}

/// Fills a new block as the settings say.
///
/// # Safety
/// `block` is a live block of this heap, and no thread uses it yet.
pub unsafe fn fill_new_by_settings(observer: &Observer, block: *mut u8) {
    if observer.flags() & (JUNK_ALLOCATED | ZERO) != 0 {
        // SAFETY: the block is live, by the fn contract.
        fill_new(observer, block, unsafe { HEAP.usable_size(block) });
    }
}

/// A block of `bytes` bytes, of a size class, with which an interval between samples ended: it is a
/// large block, so that its free is seen. It is counted. `None` if it cannot be had.
#[cold]
#[inline(never)]
fn allocate_sampled(observer: &Observer, arena: Option<&ExplicitArena>, bytes: usize) -> Option<*mut u8> {
    // As any large block it starts at a granule, which is all the alignment that a slot can have.
    let lg = observer.sampler.lg();
    let block = with_access(|access| HEAP.allocate_apart(access, arena, bytes, 1));
    if block.is_null() {
        return None;
    }
    record(observer, block, bytes, lg, true);
    // SAFETY: allocated just now.
    count_new(observer, unsafe { HEAP.usable_size(block) });
    Some(block)
}

#[cold]
fn fill_new(observer: &Observer, block: *mut u8, bytes: usize) {
    let zero = observer.flags() & ZERO != 0;
    // SAFETY: the block is ours and that long.
    unsafe {
        if zero {
            HEAP.zero(block, bytes);
        } else {
            block.write_bytes(JUNK_NEW, bytes);
        }
    }
}

/// [`super::entry::free`]; `block` is not null.
///
/// # Safety
/// As there.
#[inline(never)]
pub(super) unsafe fn free(observer: &Observer, block: *mut u8) {
    let class = quick_class(block as usize).unwrap_or(0);
    let bytes = match class {
        // SAFETY: the block is live until it is freed below (contract of `free`).
        0 => unsafe { HEAP.usable_size(block) },
        class => CLASS[class].size as usize,
    };
    observer.count_freed(bytes);
    if observer.flags() & JUNK_DEALLOCATED != 0 {
        // SAFETY: no thread uses the block any more, and it is not free yet.
        unsafe { block.write_bytes(JUNK_FREED, bytes) };
    }
    if observer.goes_around_cache() || !observer.cache().push(class, block) {
        // SAFETY: the block is from here and not used any more (contract of `free`).
        with_access(|access| unsafe { HEAP.free(access, block) });
    }
}

/// [`super::entry::realloc`] of a block that the quick look-up does not know.
///
/// # Safety
/// As there.
#[inline(never)]
pub(super) unsafe fn realloc(observer: &Observer, block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the block is live and the caller's (contract of `realloc`).
    let old = unsafe { HEAP.usable_size(block) };
    if size <= SMALL_MAX {
        // SAFETY: the block is live and the caller's (contract of `realloc`), and `old` is its usable size.
        return unsafe { realloc_small(observer, block, old, size) };
    }
    // SAFETY: the block is live and the caller's (contract of `realloc`).
    let new = with_access(|access| unsafe { HEAP.reallocate(access, block, size) });
    if new.is_null() {
        return new;
    }
    // SAFETY: live since just now.
    let bytes = unsafe { HEAP.usable_size(new) };
    observer.count_freed(old);
    count_new(observer, bytes);
    sample_large(observer, new, bytes);
    if bytes > old && observer.flags() & (JUNK_ALLOCATED | ZERO) != 0 {
        fill_new(observer, new.wrapping_add(old), bytes - old);
    }
    new
}

/// A block that is no slot becomes `size` bytes long, which a slot can be; `old` is its usable size.
///
/// # Safety
/// As for [`realloc`].
unsafe fn realloc_small(observer: &Observer, block: *mut u8, old: usize, size: usize) -> *mut u8 {
    // A sampled block that is a slot to its user stays where a slot would.
    if old <= SMALL_MAX && size <= old && (size > old / 2 || class_of(old) == 1) {
        return block;
    }
    let new = malloc(observer, size);
    if !new.is_null() {
        // SAFETY: both blocks are live, apart, and at least this long.
        unsafe {
            core::ptr::copy_nonoverlapping(block, new, old.min(size));
            free(observer, block);
        }
    }
    new
}
