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
    /// It is not fit for it.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// No thread came to a good place in time.
    #[error("none of its threads reached a safe place in time: {0}")]
    NoThread(String),
    /// Something else.
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

/// Why a process is not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A debugger has it.
    #[error("process {0} traces it (a debugger, strace); end that process first")]
    Traced(i32),
    /// It is stopped by a signal.
    #[error("it is stopped by a signal; SIGCONT continues it")]
    Stopped,
    /// It may read and write only.
    #[error("it is in seccomp's strict mode, in which malloc_trim's system calls would kill it")]
    Strict,
    /// Its filter of system calls does not let malloc_trim work.
    #[error("its seccomp filter refuses {0}, which the call needs")]
    Filter(&'static str),
    /// Its filter could not be read.
    #[error(
        "its seccomp filter cannot be read ({0}), and may kill the process for the system calls of malloc_trim"
    )]
    FilterUnread(String),
    /// It shares its address space with another process.
    #[error("it shares its memory with process {0} (vfork), whose threads ebb cannot check")]
    Shared(i32),
    /// Return addresses are kept twice.
    #[error("it has a shadow stack, which rejects a call from outside")]
    ShadowStack,
}

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
    #[error("it did not leave malloc in time")]
    NoPlace,
    /// It waits, and what is left of its time could not be told.
    #[error("it waits with a time limit that did not end in time")]
    TimeLimit,
    /// It waits in a call that a signal has stopped before, and whose time is not known.
    #[error(
        "its wait was interrupted by a signal, and its remaining time is not known"
    )]
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
