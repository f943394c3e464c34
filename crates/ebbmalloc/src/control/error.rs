//! What a call of the control tree can answer besides a value.

use std::fmt;

/// An error number of C's, as `mallctl` gives it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Error(i32);

/// What calls of this module return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The name or the system is not known.
    pub(super) const UNKNOWN: Self = Self(2);
    /// A value of the wrong size, or one that is none.
    #[cfg(target_os = "linux")]
    pub(super) const INVALID: Self = Self(22);

    #[cfg(target_os = "linux")]
    pub(super) fn new(number: i32) -> Self {
        Self(number)
    }

    /// The number, as in errno.h.
    pub fn code(self) -> i32 {
        self.0
    }

    fn words(self) -> &'static str {
        match self.0 {
            1 => "the name cannot be read, or cannot be written",
            2 => "no such name",
            11 => "no memory for it",
            14 => "there is no such thing, or it refuses",
            22 => "a value of the wrong size or out of range",
            _ => "an unknown error",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (errno {})", self.words(), self.0)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
