//! `realloc` and `reallocarray`.

use core::ffi::c_void;

use crate::KERNEL;
use crate::errno::{or_enomem, out_of_memory};
use ebbmalloc_core::os::Os;
use ebbmalloc_core::runtime;
use ebbmalloc_core::runtime::control::{self, ZeroRealloc};

/// Changes a block's size, moving it where it must. Null asks for a new block; size 0 frees the
/// block and returns null, as glibc does.
///
/// # Safety
/// `block` is null or a block that has not been freed; if the result is not null, or `size` is 0,
/// the old block is not in use any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if runtime::stays_in_slot(block.cast(), size) {
        return block;
    }
    if block.is_null() {
        return realloc_of_nothing(size);
    }
    if size == 0 {
        // SAFETY: the block is live, not null, and the program's to give up (fn contract).
        return unsafe { realloc_to_nothing(block) };
    }
    // SAFETY: the block is live and the program's (fn contract); neither it nor the size is null.
    unsafe { realloc_block(block, size) }
}

#[inline(always)]
fn realloc_of_nothing(size: usize) -> *mut c_void {
    match runtime::malloc_from_cache(size) {
        Some(block) => block.as_ptr().cast(),
        None => realloc_of_nothing_rest(size),
    }
}

#[inline(never)]
fn realloc_of_nothing_rest(size: usize) -> *mut c_void {
    or_enomem(runtime::malloc(size))
}

/// # Safety
/// As for [`realloc`]; neither `block` nor `size` is null.
#[inline(always)]
unsafe fn realloc_block(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the block is live and the program's (contract of `realloc`), and the size is not 0.
    or_enomem(unsafe { runtime::realloc(block.cast(), size) })
}

/// Size 0: frees the block, unless the setting `zero_realloc` says otherwise.
///
/// # Safety
/// As for [`realloc`].
#[cold]
unsafe fn realloc_to_nothing(block: *mut c_void) -> *mut c_void {
    control::note_zero_realloc();
    match control::zero_realloc() {
        ZeroRealloc::Free => {
            // SAFETY: the block is live, and the program does not use it again (contract of `realloc`).
            unsafe { runtime::free(block.cast()) };
            core::ptr::null_mut()
        }
        // SAFETY: the block is live and the program's (contract of `realloc`), and it is not null.
        ZeroRealloc::Alloc => unsafe { realloc_block(block, 1) },
        ZeroRealloc::Abort => {
            KERNEL.write_stderr(b"ebbmalloc: realloc of a block to size 0, and zero_realloc:abort: aborting\n");
            KERNEL.abort()
        }
    }
}

/// [`realloc`] to `count` times `size` bytes; fails where the product overflows.
///
/// # Safety
/// As for [`realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the contract is that of `realloc`, and the arguments are passed on.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => out_of_memory(),
    }
}
