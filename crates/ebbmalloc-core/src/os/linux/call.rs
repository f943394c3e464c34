//! A system call with its errors told apart from its results.

use super::arch;

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u16);

#[allow(missing_docs)]
impl Errno {
    pub const PERM: Errno = Errno(1);
    pub const INTR: Errno = Errno(4);
    pub const AGAIN: Errno = Errno(11);
    pub const NOMEM: Errno = Errno(12);
    pub const ACCES: Errno = Errno(13);
    pub const INVAL: Errno = Errno(22);
    pub const NOSYS: Errno = Errno(38);
}

/// Issues a system call of up to six arguments.
///
/// # Safety
/// The caller upholds what the system call demands of its arguments.
#[inline]
pub unsafe fn call<const N: usize>(number: usize, args: [usize; N]) -> Result<usize, Errno> {
    const { assert!(N <= 6) };
    let mut six = [0; 6];
    let mut i = 0;
    while i < N {
        six[i] = args[i];
        i += 1;
    }
    // SAFETY: the call does no harm with these arguments (fn contract); arguments that a call does not have are ignored.
    let result = unsafe { arch::syscall(number, six) };
    // The kernel's errors are -4095 to -1.
    if result.cast_unsigned() > (-4096isize).cast_unsigned() {
        #[expect(clippy::cast_possible_truncation, reason = "at most 4095")]
        let errno = result.unsigned_abs() as u16;
        Err(Errno(errno))
    } else {
        Ok(result.cast_unsigned())
    }
}
