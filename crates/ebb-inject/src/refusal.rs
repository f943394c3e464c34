//! Why no call was made: what a process is unfit for as a whole, and what a single thread was left alone for.

use ebb_inspect::{Gate, Unreadable};
use nix::errno::Errno;

use crate::stack;

/// Why no call was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCalled {
    /// The process ended.
    #[error("it ended")]
    Gone,
    /// The kernel refuses us.
    #[error("{0}")]
    Refused(Gate),
    /// The process does not allow the call.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// No thread reached a safe place in time.
    #[error("none of its threads reached a safe place in time: {0}")]
    NoThread(String),
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

impl From<Unreadable> for NotCalled {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::Gone => Self::Gone,
            other => Self::Other(other.to_string()),
        }
    }
}

/// Why a process does not allow a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A debugger traces it.
    #[error("process {0} traces it (a debugger, strace); end that process first")]
    Traced(i32),
    /// It is stopped by a signal.
    #[error("it is stopped by a signal; SIGCONT continues it")]
    Stopped,
    /// It is in seccomp's strict mode.
    #[error("it is in seccomp's strict mode, in which malloc_trim's system calls would kill it")]
    Strict,
    /// Its filter of system calls does not let malloc_trim work.
    #[error("its seccomp filter refuses {0}, which the call needs")]
    Filter(&'static str),
    /// Its filter could not be read.
    #[error("its seccomp filter cannot be read ({0}), and may kill the process for the system calls of malloc_trim")]
    FilterUnread(String),
    /// It shares its address space with another process.
    #[error("it shares its memory with process {0} (vfork), whose threads ebb cannot check")]
    Shared(i32),
    /// It has a shadow stack.
    #[error("it has a shadow stack, which rejects a call from outside")]
    ShadowStack,
}

/// Why a thread was skipped.
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
    /// It did not reach a safe place.
    #[error("it did not leave malloc in time")]
    NoPlace,
    /// It waits with a time limit, and the remaining time is not known.
    #[error("it waits with a time limit that did not end in time")]
    TimeLimit,
    /// It waits in a call that a signal has interrupted, and the remaining time is not known.
    #[error("its wait was interrupted by a signal, and its remaining time is not known")]
    Resumed,
    /// Not 64-bit code, or not entered by `syscall`.
    #[error("it does not run ordinary 64-bit code")]
    OtherCode,
    /// A signal is about to be delivered.
    #[error("a signal is pending for it")]
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
    #[error("a lock of malloc stayed locked")]
    Locked,
    /// Its stack.
    #[error(transparent)]
    Stack(#[from] stack::Unfit),
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
