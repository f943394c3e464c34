//! `realloc` and `reallocarray`.

use core::ffi::c_void;

use crate::errno::{ENOMEM, fail, or_enomem};
use ebbmalloc_core::process;

/// Changes a block's size, moving it where it must. Null asks for a new block; size 0 frees the
/// block and returns null, as glibc does.
///
/// # Safety
/// `block` is null or a block that has not been freed; if the result is not null, or `size` is 0,
/// nobody uses the old block any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        return or_enomem(process::malloc(size));
    }
    if size == 0 {
        // SAFETY: as demanded of our caller.
        unsafe { process::free(block.cast()) };
        return core::ptr::null_mut();
    }
    // SAFETY: as demanded of our caller, and the block is not null.
    or_enomem(unsafe { process::realloc(block.cast(), size) })
}

/// [`realloc`] to `count` times `size` bytes; fails where the product overflows.
///
/// # Safety
/// As for [`realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: as demanded of our caller.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => fail(ENOMEM),
    }
}
