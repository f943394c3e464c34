//! Blocks with an alignment of the caller's choice.

use core::ffi::{c_int, c_void};

use ebbmalloc_core::os::Os;

use crate::KERNEL;
use crate::errno::{EINVAL, ENOMEM, abort_if_told, fail, or_enomem, out_of_memory};
use ebbmalloc_core::runtime;

/// Stores a block aligned to `align` in `*out`; returns 0, EINVAL or ENOMEM. `errno` and, on
/// failure, `*out` stay as they are.
///
/// # Safety
/// `out` is valid to write to; the block as for `malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return EINVAL;
    }
    if let Some(block) = runtime::memalign_from_cache(align, size) {
        // SAFETY: `out` is valid to write to (contract of `posix_memalign`).
        unsafe { out.write(block.as_ptr().cast()) };
        return 0;
    }
    // SAFETY: the same contract; the arguments are passed on unchanged.
    unsafe { posix_memalign_rest(out, align, size) }
}

/// # Safety
/// As for [`posix_memalign`].
#[inline(never)]
unsafe fn posix_memalign_rest(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    let block = runtime::memalign(align, size);
    if block.is_null() {
        abort_if_told();
        return ENOMEM;
    }
    // SAFETY: `out` is valid to write to (contract of `posix_memalign`).
    unsafe { out.write(block.cast()) };
    0
}

/// A block of `size` bytes aligned to a power of two.
#[inline(always)]
fn aligned(align: usize, size: usize) -> *mut c_void {
    match runtime::memalign_from_cache(align, size) {
        Some(block) => block.as_ptr().cast(),
        None => aligned_rest(align, size),
    }
}

#[inline(never)]
fn aligned_rest(align: usize, size: usize) -> *mut c_void {
    or_enomem(runtime::memalign(align, size))
}

/// A block aligned to a power of two; `size` need not be a multiple of it (C17 and later).
///
/// # Safety
/// As for `malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        return fail(EINVAL);
    }
    aligned(align, size)
}

/// A block aligned to `align`, which is rounded up to a power of two as glibc does.
///
/// # Safety
/// As for `malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => aligned(align, size),
        None => fail(EINVAL),
    }
}

/// A block that starts on a page of its own.
///
/// # Safety
/// As for `malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    aligned(KERNEL.page_bytes(), size)
}

/// A block of whole pages; one page for size 0.
///
/// # Safety
/// As for `malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    let page = KERNEL.page_bytes();
    match size.max(1).checked_next_multiple_of(page) {
        Some(bytes) => aligned(page, bytes),
        None => out_of_memory(),
    }
}
