//! What an allocator other than glibc's holds: one ledger for all of them, their settings in force, and why
//! there is none.
//!
//! The readers [`crate::jemalloc`], [`crate::musl`], [`crate::mimalloc`] and [`crate::tcmalloc`] fill it; the
//! lines are made so that each of them has its place there.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::glibc::SizeCount;
use crate::line::Line;
use crate::memory::Unreadable;

/// Why an allocator's memory was not read: said rather than guessed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// It is not in the process, or has not been used yet.
    #[error("no {0} that has served a request was found")]
    NotThere(&'static str),
    /// It is there, and its structures are not where any known version has them.
    #[error("{0}: the layout of its structures is not known")]
    Layout(String),
    /// They were read, and contradict each other: a process that changes too fast, or a build of its own.
    #[error("{0}")]
    Contradicts(String),
    /// The process's memory is closed or gone.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Where the bytes of an allocator's regions are. The lines add up to `system`, see [`Ledger::adds_up`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// All address space that its structures tell of, and how much of it is resident.
    pub system: Line,
    /// In blocks that the program has and has not freed.
    pub live: Line,
    /// Freed blocks in the caches of threads.
    pub cached: Line,
    /// Free blocks beside live ones: in slabs, pages or groups of their size.
    pub free: Line,
    /// Free pages that it keeps, to use them again or return them later.
    pub kept: Line,
    /// Free pages that it returned lazily: the kernel takes them when memory is short (MADV_FREE).
    pub lazy: Line,
    /// Free address space whose pages it returned, or never used.
    pub returned: Line,
    /// Its own structures, and what rounding leaves over.
    pub overhead: Line,
}

impl Ledger {
    /// Whether the lines add up, in bytes and in resident bytes.
    pub fn adds_up(&self) -> bool {
        let sum = |figure: fn(&Line) -> u64| {
            self.parts().iter().map(figure).sum::<u64>() == figure(&self.system)
        };
        sum(|line| line.bytes) && sum(|line| line.resident)
    }

    /// Sets `system` to the sum of the lines.
    pub(crate) fn close(&mut self) {
        self.system = Line::default();
        for part in self.parts() {
            self.system += part;
        }
    }

    fn parts(&self) -> [Line; 7] {
        [self.live, self.cached, self.free, self.kept, self.lazy, self.returned, self.overhead]
    }
}

/// What was read of an allocator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Holdings {
    /// Its name and version: `jemalloc 5.3.0`.
    pub reader: String,
    /// Where the bytes are.
    pub ledger: Ledger,
    /// Arenas, where it has such.
    pub arenas: Option<u64>,
    /// Live blocks by their size class.
    pub sizes: Vec<SizeCount>,
    /// Its settings in force, under its own names for them.
    pub settings: BTreeMap<String, String>,
    /// Structures that were torn, so that what they tell of is missing here.
    pub torn: u64,
    /// Bytes that it counts as in use and that were not found.
    pub missing: u64,
    /// The most that `live` may be off, as a part of it: what was counted and could not be looked at.
    pub error: f64,
}

/// How often a heap is read whose figures contradict each other: the process runs meanwhile.
const ATTEMPTS: u32 = 3;

/// What `once` reads as soon as its figures agree; it says in words how they contradict each other.
pub(crate) fn consistent(
    once: impl Fn() -> Result<Result<Holdings, String>, Unreadable>,
) -> Result<Holdings, Unsupported> {
    let mut contradiction = String::new();
    for _ in 0..ATTEMPTS {
        match once()? {
            Ok(holdings) => return Ok(holdings),
            Err(why) => contradiction = why,
        }
    }
    Err(Unsupported::Contradicts(contradiction))
}

/// Counts of live blocks by their size class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes(BTreeMap<u64, SizeCount>);

impl Classes {
    /// Counts `blocks` of `bytes` each, which fill their class.
    pub(crate) fn count(&mut self, bytes: u64, blocks: u64) {
        if blocks > 0 {
            self.add(bytes, blocks, bytes.saturating_mul(blocks));
        }
    }

    /// Counts a block of `bytes` in the class that goes up to `up_to`.
    pub(crate) fn block(&mut self, up_to: u64, bytes: u64) {
        self.add(up_to, 1, bytes);
    }

    fn add(&mut self, up_to: u64, blocks: u64, bytes: u64) {
        let class = self.0.entry(up_to).or_insert(SizeCount { up_to, chunks: 0, bytes: 0 });
        class.chunks += blocks;
        class.bytes = class.bytes.saturating_add(bytes);
    }

    /// The classes that have a block, the smallest first.
    pub(crate) fn counts(&self) -> Vec<SizeCount> {
        self.0.values().copied().collect()
    }
}
