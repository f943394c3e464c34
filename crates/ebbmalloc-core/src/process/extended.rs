//! Requests that say more than a size: an alignment, zeros. What they do not say is as in `entry`.

use super::entry;
use super::instance::HEAP;
use super::thread::with_access;
use crate::heap::in_place;
use crate::os::Os;
use crate::size::QUANTUM;

/// What a request says beside its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// A power of two; 1 if it does not matter.
    pub align: usize,
    /// The block reads as zero.
    pub zero: bool,
}

impl Choice {
    /// A request that says nothing but its size.
    pub const PLAIN: Self = Self {
        align: 1,
        zero: false,
    };
}

/// A block of at least `size` bytes; null if there is no memory.
pub fn allocate_with(size: usize, choice: &Choice) -> *mut u8 {
    if choice.zero && choice.align <= QUANTUM {
        return entry::malloc_zeroed(size);
    }
    let block = entry::memalign(choice.align, size);
    if choice.zero && !block.is_null() {
        // SAFETY: the block is ours and at least `size` bytes long.
        unsafe { block.write_bytes(0, size) };
    }
    block
}

/// Takes a block back.
///
/// # Safety
/// As for [`entry::free`].
pub unsafe fn free_with(block: *mut u8, choice: &Choice) {
    let _ = choice;
    // SAFETY: the caller's promise.
    unsafe { entry::free(block) }
}

/// Makes a block larger or smaller; null if there is no memory, and the block is unchanged then. With
/// `zero`, what is beyond its old usable size reads as zero.
///
/// # Safety
/// As for [`entry::realloc`].
pub unsafe fn reallocate_with(block: *mut u8, size: usize, choice: &Choice) -> *mut u8 {
    // SAFETY: the caller's promise.
    let old = unsafe { entry::usable_size(block) };
    let plain = choice.align <= QUANTUM;
    let new = if plain {
        // SAFETY: the caller's promise.
        unsafe { entry::realloc(block, size) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { reallocate_aligned(block, old, size, choice) }
    };
    if choice.zero && !new.is_null() {
        // SAFETY: the block is ours, and as long as it says.
        unsafe {
            let usable = entry::usable_size(new);
            if usable > old {
                new.add(old).write_bytes(0, usable - old);
            }
        }
    }
    new
}

/// # Safety
/// As for [`reallocate_with`]; `old` is the usable size of `block`.
unsafe fn reallocate_aligned(block: *mut u8, old: usize, size: usize, choice: &Choice) -> *mut u8 {
    if (block as usize).is_multiple_of(choice.align) {
        // SAFETY: the caller's promise.
        let usable = unsafe { resize_in_place(block, size, size, false) };
        // As long as a new block would be, or not long enough to be worth a move.
        if usable >= size && size > usable / 2 {
            return block;
        }
    }
    let plain = Choice {
        zero: false,
        ..*choice
    };
    let new = allocate_with(size, &plain);
    if !new.is_null() {
        // SAFETY: both blocks are live, apart, and at least this long.
        unsafe {
            core::ptr::copy_nonoverlapping(block, new, old.min(size));
            free_with(block, choice);
        }
    }
    new
}

/// Makes a block at least `least` bytes long where it is, up to `most` if there is room, and no longer
/// than that if it is a large one; returns its usable size afterwards. With `zero`, what is new reads
/// as zero.
///
/// # Safety
/// `block` is a live block from here, which nobody else changes meanwhile.
pub unsafe fn resize_in_place(block: *mut u8, least: usize, most: usize, zero: bool) -> usize {
    // SAFETY: the caller's promise.
    let old = unsafe { entry::usable_size(block) };
    // SAFETY: the caller's promise.
    let new = with_access(|access| unsafe { HEAP.resize_in_place(access, block, least, most) });
    if zero && new > old {
        // SAFETY: the block is as long as was said just now.
        unsafe { block.add(old).write_bytes(0, new - old) };
    }
    new
}

/// Usable bytes of the block that [`allocate_with`] would give; 0 if it would give none whatever the
/// memory.
pub fn usable_of_request(size: usize, choice: &Choice) -> usize {
    in_place::usable_of_request(size, choice.align, HEAP.os.page_bytes())
}
