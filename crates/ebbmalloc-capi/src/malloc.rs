//! `malloc`, `calloc`, `free` and the sizes of blocks.

use core::ffi::c_void;

use crate::errno::{or_enomem, out_of_memory};
use ebbmalloc_core::runtime::{self, Maker, Sized};

const MALLOC: u8 = Maker::Malloc as u8;

/// At least `size` bytes, aligned to 16; a block also for size 0.
///
/// # Safety
/// As in C: the block is used within its size, until it is freed.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    match runtime::malloc_from_cache(size) {
        Some(block) => block.as_ptr().cast(),
        None => malloc_slow(size),
    }
}

/// What the thread's cache cannot serve; apart, so that `malloc` itself needs no stack frame.
#[inline(never)]
fn malloc_slow(size: usize) -> *mut c_void {
    or_enomem(runtime::malloc_slow(size))
}

/// `count` times `size` bytes of zeros.
///
/// # Safety
/// As for [`malloc`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return out_of_memory();
    };
    match runtime::malloc_zeroed_from_cache(bytes) {
        Some(block) => block.as_ptr().cast(),
        None => calloc_rest(bytes),
    }
}

/// What the thread's cache cannot serve.
#[inline(never)]
fn calloc_rest(bytes: usize) -> *mut c_void {
    or_enomem(runtime::malloc_zeroed(bytes))
}

/// Frees a block; nothing for null.
///
/// # Safety
/// `block` is null or a block that has not been freed, and is not in use any more.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the program frees a block from here, or null, and does not use it again (contract of `free`).
    unsafe { runtime::free(block.cast()) }
}

/// Frees a block that `malloc`, `calloc` or `realloc` gave for `size` bytes (C23).
///
/// # Safety
/// As for [`free`], and `size` is the size that was asked for.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn free_sized(block: *mut c_void, size: usize) {
    // The look-up of the class is one load, and finds a wrong pointer. Strict mode checks the size.
    // SAFETY: the program frees a block from here, or null, and does not use it again (contract of `free`).
    unsafe { runtime::free_as(block.cast(), Sized::<MALLOC>(size)) }
}

/// Frees a block that `aligned_alloc` gave (C23).
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, _align: usize, size: usize) {
    // The size class of an aligned block follows from both; the page map tells it as well.
    // SAFETY: the program frees a block from here, or null, and does not use it again (contract of `free`).
    unsafe { runtime::free_as(block.cast(), Sized::<MALLOC>(size)) }
}

/// [`free`], under a name that old programs use.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: the program frees a block from here, or null, and does not use it again (contract of `free`).
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
    // SAFETY: the block is live (fn contract) and not null.
    unsafe { runtime::usable_size(block.cast()) }
}
