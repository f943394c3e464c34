//! `malloc`, `calloc`, `free` and the sizes of blocks.

use core::ffi::c_void;
use core::ptr::null_mut;

use crate::errno::{or_enomem, out_of_memory};
use ebbmalloc_core::runtime::request_hooks::{self, Allocation, Deallocation};
use ebbmalloc_core::runtime::{self, Choice};

/// At least `size` bytes, aligned to 16; a block also for size 0.
///
/// # Safety
/// As in C: the block is used within its size, until it is freed.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    match runtime::malloc_from_cache(size) {
        Some(block) => block.as_ptr().cast(),
        None => malloc_rest(size),
    }
}

/// What the thread's cache cannot serve; apart, so that `malloc` itself needs no stack frame.
#[inline(never)]
fn malloc_rest(size: usize) -> *mut c_void {
    or_enomem(runtime::malloc_rest(size))
}

/// `count` times `size` bytes of zeros.
///
/// # Safety
/// As for [`malloc`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return calloc_too_much(count, size);
    };
    match runtime::malloc_zeroed_from_cache(bytes) {
        Some(block) => block.as_ptr().cast(),
        None => calloc_rest(count, size),
    }
}

#[cold]
#[inline(never)]
fn calloc_too_much(count: usize, size: usize) -> *mut c_void {
    request_hooks::allocated(Allocation::Calloc, null_mut(), 0, [count, size, 0]);
    out_of_memory()
}

/// What the thread's cache cannot serve; the product does not overflow.
#[inline(never)]
fn calloc_rest(count: usize, size: usize) -> *mut c_void {
    let block = runtime::malloc_zeroed(count.wrapping_mul(size));
    let args = [count, size, 0];
    request_hooks::allocated(Allocation::Calloc, block, block as usize, args);
    or_enomem(block)
}

/// Frees a block; nothing for null.
///
/// # Safety
/// `block` is null or a block that has not been freed, and nobody uses it any more.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: as demanded of our caller.
    unsafe { runtime::free(block.cast()) }
}

/// Frees a block that `malloc`, `calloc` or `realloc` gave for `size` bytes (C23).
///
/// # Safety
/// As for [`free`], and `size` is the size that was asked for.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn free_sized(block: *mut c_void, size: usize) {
    // SAFETY: as demanded of our caller.
    unsafe { runtime::free_sized(block.cast(), size) }
}

/// Frees a block that `aligned_alloc` gave (C23).
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, align: usize, size: usize) {
    let args = [block as usize, size, Choice::flags_of_alignment(align)];
    request_hooks::freeing(Deallocation::Sdallocx, block.cast(), args);
    // The size class of an aligned block follows from both; the page map tells it as well.
    // SAFETY: as demanded of our caller.
    unsafe { runtime::free_untold(block.cast()) }
}

/// [`free`], under a name that old programs use.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: as demanded of our caller.
    unsafe { runtime::free(block.cast()) }
}

/// How many bytes of the block may be used, at least as many as were asked for; 0 for null.
///
/// # Safety
/// `block` is null or a block that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *const c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: as demanded of our caller.
    unsafe { runtime::usable_size(block.cast()) }
}
