//! libc's thin wrappers of system calls that the allocator has to know of.

use core::ffi::{c_int, c_ulong, c_void};

use ebbmalloc_core::base::exact::usize_of;
use ebbmalloc_core::os::linux::{Errno, Linux};
use ebbmalloc_core::runtime;

use crate::KERNEL;
use crate::errno::fail;

/// `madvise(2)`. A wish for huge pages on a block ends with the block.
///
/// # Safety
/// The program does not rely on the contents that the advice discards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    if Linux::wants_huge_pages(advice) {
        runtime::wants_huge_pages(start as usize, bytes);
    }
    // SAFETY: the program does not rely on what the advice throws away (fn contract).
    status(unsafe { KERNEL.madvise(start as usize, bytes, advice) }.map(|()| 0))
}

/// `unshare(2)`. A single-threaded program may call it, and must not find that it has a second thread.
#[unsafe(no_mangle)]
pub extern "C" fn unshare(flags: c_int) -> c_int {
    status(runtime::without_purger(|| KERNEL.unshare(flags)).map(|()| 0))
}

/// `setns(2)`, as [`unshare`].
#[unsafe(no_mangle)]
pub extern "C" fn setns(descriptor: c_int, kinds: c_int) -> c_int {
    status(runtime::without_purger(|| KERNEL.setns(descriptor, kinds)).map(|()| 0))
}

/// `prctl(2)`. A program that begins a sandbox with it stops the purger, and from then on the allocator makes only
/// system calls that no sandbox kills for. In C it takes any number of arguments, which come in the same registers; the
/// ones that were not passed hold anything, and the kernel does not look at them.
///
/// # Safety
/// The arguments are what the operation demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(operation: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    let arguments = [a, b, c, d].map(usize_of);
    // SAFETY: the arguments are what the operation demands (fn contract).
    let call = || unsafe { KERNEL.prctl(operation, arguments) };
    status(if Linux::begins_sandbox(operation) { runtime::entering_sandbox(call) } else { call() })
}

/// The result, or -1 with the error in `errno`.
fn status(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|errno| {
        fail(errno.0.into());
        -1
    })
}
