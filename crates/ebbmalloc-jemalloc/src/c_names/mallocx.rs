//! jemalloc's extended functions: `mallocx` and its kin, whose last argument says how.
//!
//! The flags: log2 of the alignment in the low six bits; 0x40 for zeros; from bit 8 on which cache,
//! from bit 20 on which arena. None of these functions touches `errno`.

use core::ffi::{c_int, c_void};

use crate::blocks::{self, Choice};
use ebbmalloc_core::runtime::face::HEAP;
use ebbmalloc_core::runtime::{self, Freed, Maker, strict};

fn choice(flags: c_int) -> Choice {
    Choice::from_flags(flags)
}

/// At least `size` bytes, or null; size 0 counts as 1.
///
/// # Safety
/// As for `malloc`; a cache or an arena that `flags` name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallocx(size: usize, flags: c_int) -> *mut c_void {
    if flags == 0 {
        let block = match runtime::malloc_from_cache(size) {
            Some(block) => block.as_ptr(),
            None => runtime::malloc_slow(size.max(1)),
        };
        return block.cast();
    }
    blocks::allocate_with(size, &choice(flags)).cast()
}

/// Changes a block's size, moving it where it must; null if there is no memory, and the block is
/// unchanged then.
///
/// # Safety
/// `block` is a block that has not been freed; if the result is not null, the old block is not in use any
/// more. A cache or an arena that `flags` name exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rallocx(block: *mut c_void, size: usize, flags: c_int) -> *mut c_void {
    // SAFETY: the block is live and the program's, and what `flags` name exists (fn contract).
    unsafe { blocks::reallocate_with(block.cast(), size, &choice(flags)) }.cast()
}

/// Changes a block's size where it is, to at least `size` bytes and up to `size + extra` as far as there
/// is room. Returns its usable size afterwards, which is less than `size` if that did not go.
///
/// # Safety
/// `block` is a block that has not been freed, and no other thread changes it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xallocx(block: *mut c_void, size: usize, extra: usize, flags: c_int) -> usize {
    let choice = choice(flags);
    if !(block as usize).is_multiple_of(choice.align) {
        // SAFETY: the block is live (fn contract).
        return unsafe { runtime::usable_size(block.cast()) };
    }
    let most = size.saturating_add(extra);
    // SAFETY: the block is live and the program's (fn contract).
    unsafe { blocks::resize_in_place(block.cast(), size, most, choice.zero) }
}

/// How many bytes of the block may be used.
///
/// # Safety
/// `block` is a block that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sallocx(block: *const c_void, _flags: c_int) -> usize {
    // SAFETY: the block is live (fn contract).
    unsafe { runtime::usable_size(block.cast()) }
}

/// Frees a block.
///
/// # Safety
/// `block` is a block that has not been freed, and is not in use any more. A cache that `flags` name
/// exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dallocx(block: *mut c_void, flags: c_int) {
    // SAFETY: the block is live and not used again, and the cache that `flags` name exists (contract of `dallocx`).
    unsafe { blocks::free_with(block.cast(), &choice(flags)) }
}

/// Frees a block that was asked for with `size` bytes and the alignment in `flags`.
///
/// # Safety
/// As for [`dallocx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdallocx(block: *mut c_void, size: usize, flags: c_int) {
    if strict::is_on() {
        let freed = Freed { by: Maker::Malloc, size: Some(size) };
        // SAFETY: the block is live and not used again (fn contract).
        return unsafe { strict::free(block.cast(), freed) };
    }
    // The look-up is one load, and finds a wrong pointer.
    // SAFETY: the block is live and not used again, and the cache that `flags` name exists (contract of `dallocx`).
    unsafe { blocks::free_with(block.cast(), &choice(flags)) }
}

/// The usable size of the block that [`mallocx`] would give; 0 if it would give none, whatever the
/// memory.
#[unsafe(no_mangle)]
pub extern "C" fn nallocx(size: usize, flags: c_int) -> usize {
    blocks::usable_of_request(size, &choice(flags))
}

/// The hint by which redis defragments its values, which its own copy of jemalloc adds: 1 if the block should be moved: by a new block of `mallocx` without a cache, a copy, and a free without a
/// cache.
///
/// # Safety
/// `block` is a live block of this allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn je_get_defrag_hint(block: *mut c_void) -> c_int {
    HEAP.utilization(block.addr()).is_sparse().into()
}
