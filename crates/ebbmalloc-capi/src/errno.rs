//! `errno`, where the C library has one.

use core::ffi::{c_int, c_void};

use ebbmalloc_core::os::Os;
use ebbmalloc_core::runtime::conf::Id;
use ebbmalloc_core::runtime::{Hooks, in_force};

use crate::KERNEL;

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

/// No memory: null with ENOMEM in `errno`; under the setting `xmalloc` the end of the process.
#[cold]
#[inline(never)]
pub fn out_of_memory() -> *mut c_void {
    abort_if_told();
    fail(ENOMEM)
}

/// Ends the process for lack of memory if the setting `xmalloc` says so.
#[cold]
pub fn abort_if_told() {
    if in_force::is(Id::Xmalloc) {
        KERNEL.write_stderr(b"ebbmalloc: out of memory, and xmalloc:true: aborting\n");
        KERNEL.abort();
    }
}

/// `block`, or null with ENOMEM in `errno`.
#[inline(always)]
pub fn or_enomem(block: *mut u8) -> *mut c_void {
    if block.is_null() {
        return out_of_memory();
    }
    block.cast()
}
