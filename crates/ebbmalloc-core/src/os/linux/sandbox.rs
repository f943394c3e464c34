//! Sandboxes and namespaces: the system calls that enter one, which the C face offers itself, so that it can have the
//! purger stopped meanwhile; and the few calls that are made inside a sandbox.
//!
//! A seccomp filter may kill for any call that the program itself does not make. Every
//! allocator calls mmap, munmap, mremap, mprotect and madvise, and no filter refuses futex and clock_gettime.
//! So only these calls are made inside, and the answers of the others are remembered.

use core::sync::atomic::{AtomicU32, Ordering};

use super::arch::nr;
use super::call::{Errno, call};
use super::{Linux, barrier, discard, wait};

const PR_SET_SECCOMP: i32 = 22;
const PR_SET_NO_NEW_PRIVS: i32 = 38;

impl Linux {
    /// The system call `prctl`.
    ///
    /// # Safety
    /// `arguments` are what the operation demands.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "what the kernel returns from prctl is an int"
    )]
    pub unsafe fn prctl(&self, operation: i32, arguments: [usize; 4]) -> Result<i32, Errno> {
        let [a, b, c, d] = arguments;
        // SAFETY: the arguments are what the operation demands (fn contract).
        unsafe { call(nr::PRCTL, [(operation as isize).cast_unsigned(), a, b, c, d]) }.map(|result| result as i32)
    }

    /// The system call `unshare`: parts with what `flags` name.
    pub fn unshare(&self, flags: i32) -> Result<(), Errno> {
        // SAFETY: the kernel's doing alone; no memory changes.
        unsafe { call(nr::UNSHARE, [(flags as isize).cast_unsigned()]) }.map(|_| ())
    }

    /// The system call `setns`: enters the namespaces of a descriptor.
    pub fn setns(&self, descriptor: i32, kinds: i32) -> Result<(), Errno> {
        // SAFETY: the kernel's doing alone; no memory changes.
        unsafe { call(nr::SETNS, [(descriptor as isize).cast_unsigned(), (kinds as isize).cast_unsigned()]) }
            .map(|_| ())
    }

    /// Whether this operation of prctl is the beginning of a sandbox: a filter, or the promise that
    /// the kernel demands before it takes a filter from a program without rights.
    pub fn begins_sandbox(operation: i32) -> bool {
        matches!(operation, PR_SET_SECCOMP | PR_SET_NO_NEW_PRIVS)
    }

    /// From now on, and in all children, only the calls are made that no filter kills for.
    pub fn confine(&self) {
        self.vectors.store(discard::REFUSED, Ordering::Relaxed);
        self.barrier.store(barrier::REFUSED, Ordering::Relaxed);
        self.confined.store(true, Ordering::Relaxed);
    }

    /// Whether [`Linux::confine`] was called.
    pub fn is_confined(&self) -> bool {
        self.confined.load(Ordering::Relaxed)
    }

    /// A millisecond's sleep in place of sched_yield, which filters forget.
    pub(super) fn pause(&self) {
        wait::wait(&AtomicU32::new(0), 0, Some(1));
    }
}
