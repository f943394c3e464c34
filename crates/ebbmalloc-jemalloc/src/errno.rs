//! The errors that `mallctl` knows, by the numbers of Linux.

use core::ffi::c_int;
use core::fmt;

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

impl Errno {
    /// Read of what can only be written, or written of what can only be read.
    pub const EPERM: Self = Self(1);
    /// No such name.
    pub const ENOENT: Self = Self(2);
    /// Not now: no memory for it.
    pub const EAGAIN: Self = Self(11);
    /// The name leads to no such thing, or it refuses.
    pub const EFAULT: Self = Self(14);
    /// A buffer of the wrong size, or a value out of range.
    pub const EINVAL: Self = Self(22);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::EPERM => "the name cannot be used in this direction (EPERM)",
            Self::ENOENT => "no such name (ENOENT)",
            Self::EAGAIN => "no memory for it (EAGAIN)",
            Self::EFAULT => "no such thing, or it refuses (EFAULT)",
            Self::EINVAL => "a value of the wrong size or out of range (EINVAL)",
            Self(other) => return write!(f, "errno {other}"),
        })
    }
}

impl core::error::Error for Errno {}

/// What every node answers.
pub type Result<T> = core::result::Result<T, Errno>;
