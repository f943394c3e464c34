//! `errno`, where the C library has one.

use core::ffi::{c_int, c_void};

use ebbmalloc_core::process::Hooks;

/// Invalid argument.
pub const EINVAL: c_int = 22;
/// Out of memory.
pub const ENOMEM: c_int = 12;

unsafe extern "Rust" {
    /// The face's references into the C library.
    safe fn __ebbmalloc_hooks() -> &'static Hooks;
}

/// The face's references into the C library.
pub fn hooks() -> &'static Hooks {
    __ebbmalloc_hooks()
}

/// Sets `errno` and returns null: how a failed allocation ends.
#[cold]
#[inline(never)]
pub fn fail(errno: c_int) -> *mut c_void {
    // SAFETY: the hook may be called at any time.
    let at = unsafe { (hooks().errno_location)() };
    if !at.is_null() {
        // SAFETY: libc's `errno` of the calling thread.
        unsafe { at.write(errno) };
    }
    core::ptr::null_mut()
}

/// `block`, or null with ENOMEM in `errno`.
#[inline(always)]
pub fn or_enomem(block: *mut u8) -> *mut c_void {
    if block.is_null() {
        return fail(ENOMEM);
    }
    block.cast()
}
