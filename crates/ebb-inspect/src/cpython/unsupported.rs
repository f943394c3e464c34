//! Why nothing is said of a process.

use crate::memory::Unreadable;

/// Why there is nothing to say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// No file of the process defines `_PyRuntime`.
    #[error("it has no CPython")]
    NoPython,
    /// A version or a kind of build whose layout is not known.
    #[error("{0}")]
    Layout(String),
    /// It could not be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}
