//! Why a thread was left alone.

use ebb_inspect::Unreadable;
use nix::errno::Errno;

use crate::stack::Unfit;

/// Why a thread was left alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Left {
    /// It ended.
    #[error("it ended")]
    Gone,
    /// ptrace refuses it.
    #[error("no right to stop it")]
    Refused,
    /// The whole process is stopped.
    #[error("it is stopped by a signal")]
    Stopped,
    /// It does not stop.
    #[error("it does not stop: it waits uninterruptibly")]
    Uninterruptible,
    /// It came to no good place.
    #[error("it came to no place outside of malloc in time")]
    NoPlace,
    /// It waits, and what is left of its time could not be told.
    #[error("it waits with a time limit, which did not end in time")]
    TimeLimit,
    /// It waits in a call that a signal has stopped before, and whose time is not known.
    #[error(
        "a signal has stopped its wait before, and the kernel alone knows how long that goes on"
    )]
    Resumed,
    /// Not 64-bit code, or not entered by `syscall`.
    #[error("it does not run ordinary 64-bit code")]
    OtherCode,
    /// A signal is about to be delivered.
    #[error("a signal is on its way to it")]
    SignalPending,
    /// libc holds off all signals.
    #[error("it blocks signals that only libc blocks")]
    Critical,
    /// Its filter of system calls refuses one that is needed.
    #[error("its seccomp filter refuses {0}")]
    Filter(&'static str),
    /// Its filter of system calls cannot be read.
    #[error("its seccomp filter cannot be read ({0})")]
    FilterUnread(String),
    /// An arena stayed locked.
    #[error("a lock of malloc stayed taken")]
    Locked,
    /// Its stack.
    #[error(transparent)]
    Stack(#[from] Unfit),
    /// Something else that the kernel said.
    #[error("{0}")]
    Other(String),
}

impl From<Errno> for Left {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ESRCH | Errno::ECHILD => Self::Gone,
            Errno::EPERM | Errno::EACCES => Self::Refused,
            other => Self::Other(other.desc().to_owned()),
        }
    }
}

impl From<Unreadable> for Left {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::Gone => Self::Gone,
            Unreadable::Refused => Self::Refused,
            other => Self::Other(other.to_string()),
        }
    }
}
