//! `prctl`: a program that begins a sandbox with it leaves the allocator's own thread behind, and from
//! then on the allocator makes only system calls that no sandbox kills for.

use core::ffi::{c_int, c_ulong};
use ebbmalloc_core::base::exact::usize_of;

use ebbmalloc_core::os::linux::Linux;
use ebbmalloc_core::runtime;

use crate::KERNEL;
use crate::errno::fail;

/// `prctl(2)`. In C it takes any number of arguments, which come in the same registers; those that
/// were not passed hold anything, and the kernel does not look at them.
///
/// # Safety
/// The arguments are what the operation demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    operation: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    let arguments = [a, b, c, d].map(usize_of);
    // SAFETY: the arguments are what the operation demands (fn contract).
    let call = || unsafe { KERNEL.prctl(operation, arguments) };
    let result =
        if Linux::begins_sandbox(operation) { runtime::entering_sandbox(call) } else { call() };
    result.unwrap_or_else(|errno| {
        fail(errno.0.into());
        -1
    })
}
