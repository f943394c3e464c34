//! unshare and setns, which the kernel refuses to a process with several threads: the C face offers
//! them itself, so that it can have the purger stopped meanwhile.

use super::Linux;
use super::arch::nr;
use super::call::{Errno, call};

impl Linux {
    /// The system call `unshare`: parts with what `flags` name.
    pub fn unshare(&self, flags: i32) -> Result<(), Errno> {
        // SAFETY: the kernel's doing alone; no memory changes.
        unsafe { call(nr::UNSHARE, [(flags as isize).cast_unsigned()]) }.map(|_| ())
    }

    /// The system call `setns`: enters the namespaces behind a descriptor.
    pub fn setns(&self, descriptor: i32, kinds: i32) -> Result<(), Errno> {
        // SAFETY: the kernel's doing alone; no memory changes.
        unsafe {
            call(
                nr::SETNS,
                [(descriptor as isize).cast_unsigned(), (kinds as isize).cast_unsigned()],
            )
        }
        .map(|_| ())
    }
}
