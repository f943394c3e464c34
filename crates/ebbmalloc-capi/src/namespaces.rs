//! `unshare` and `setns`: a single-threaded program may call them, and must not find that it has a
//! second thread, ours. They are libc's thin wrappers with the purger stopped around them.

use core::ffi::c_int;

use ebbmalloc_core::os::linux::Errno;
use ebbmalloc_core::runtime;

use crate::KERNEL;
use crate::errno::fail;

/// `unshare(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn unshare(flags: c_int) -> c_int {
    status(runtime::without_purger(|| KERNEL.unshare(flags)))
}

/// `setns(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn setns(descriptor: c_int, kinds: c_int) -> c_int {
    status(runtime::without_purger(|| KERNEL.setns(descriptor, kinds)))
}

/// 0, or -1 with the error in `errno`.
fn status(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            fail(errno.0.into());
            -1
        }
    }
}
