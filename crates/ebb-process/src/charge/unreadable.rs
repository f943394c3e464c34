//! Why a process's memory or its loader's list cannot be read.

use std::io;

use procfs::ProcError;

/// Why it is not known where a process takes its `malloc` from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It ended.
    #[error("the process ended")]
    Gone,
    /// Its mappings are closed to us, as those of a process that changed its user are.
    #[error("no right to read its memory map")]
    Permission,
    /// The loader has not finished.
    #[error("its libraries are not loaded yet")]
    Starting,
    /// It is of another word size than we are.
    #[error("a {0}-bit program: not read")]
    Bits(u8),
    /// What the loader left in its memory is in swap.
    #[error("its loader's list is in swap, which ebb does not read")]
    Swapped,
    /// Several mapped files define `malloc`, and their order cannot be read.
    #[error("several mapped files define malloc, and their order cannot be read")]
    Order,
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

pub(crate) fn reason(error: ProcError) -> Unreadable {
    match error {
        ProcError::NotFound(_) => Unreadable::Gone,
        ProcError::PermissionDenied(_) => Unreadable::Permission,
        ProcError::Io(error, _) => io_reason(&error),
        other => Unreadable::Other(other.to_string()),
    }
}

pub(crate) fn io_reason(error: &io::Error) -> Unreadable {
    match error.kind() {
        io::ErrorKind::NotFound => Unreadable::Gone,
        io::ErrorKind::PermissionDenied => Unreadable::Permission,
        _ if error.raw_os_error() == Some(libc::ESRCH) => Unreadable::Gone,
        _ => Unreadable::Other(error.to_string()),
    }
}
