//! Why no call was made into a process.

use ebb_inspect::{Gate, Unreadable};

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
    #[error("no thread of it could be stopped at a safe place in time: {0}")]
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
    #[error("process {0} traces it (a debugger, strace); end that first")]
    Traced(i32),
    /// It is stopped by a signal.
    #[error("it is stopped by a signal; SIGCONT lets it go on")]
    Stopped,
    /// It may read and write only.
    #[error("it is in seccomp's strict mode, in which malloc_trim's system calls would kill it")]
    Strict,
    /// Its filter of system calls does not let malloc_trim work.
    #[error("its seccomp filter refuses {0}, which malloc_trim or the way back from it needs")]
    Filter(&'static str),
    /// Its filter could not be read.
    #[error(
        "it has a seccomp filter that cannot be read ({0}), and that may kill it for what malloc_trim does"
    )]
    FilterUnread(String),
    /// It shares its address space with another process.
    #[error("it shares its memory with process {0} (vfork), whose threads would not be seen")]
    Shared(i32),
    /// Return addresses are kept twice.
    #[error("it has a shadow stack, which no frame from outside agrees with")]
    ShadowStack,
}
