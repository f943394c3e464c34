//! `madvise`: a program that asks for huge pages on a block of its own is heard, and the wish ends with
//! the block.

use core::ffi::{c_int, c_void};

use ebbmalloc_core::os::linux::Linux;
use ebbmalloc_core::runtime;

use crate::KERNEL;
use crate::errno::fail;

/// `madvise(2)`.
///
/// # Safety
/// Nobody relies on what the advice throws away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    if Linux::wants_huge_pages(advice) {
        runtime::wants_huge_pages(start as usize);
    }
    // SAFETY: the program does not rely on what the advice throws away (fn contract).
    match unsafe { KERNEL.madvise(start as usize, bytes, advice) } {
        Ok(()) => 0,
        Err(errno) => {
            fail(errno.0.into());
            -1
        }
    }
}
