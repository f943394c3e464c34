//! A line of a ledger: how many blocks, how many bytes, and which of them are on present pages.

use serde::Serialize;

use crate::memory::Presence;

/// Bytes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Chunks, blocks or extents.
    pub chunks: u64,
    /// Bytes of address space, headers included.
    pub bytes: u64,
    /// Those of them that lie on pages which are present.
    pub resident: u64,
}

impl Line {
    /// One of `bytes`, `resident` of them on present pages.
    pub(crate) fn one(bytes: u64, resident: u64) -> Self {
        Self { chunks: 1, bytes, resident }
    }

    /// Counts a chunk from `from` to `to`.
    pub(crate) fn add(&mut self, from: u64, to: u64, presence: &Presence) {
        *self += Self::one(to.saturating_sub(from), presence.bytes(from, to));
    }

    /// Moves bytes to another line, no more than there are.
    pub(crate) fn give(&mut self, to: &mut Self, bytes: u64, resident: u64) {
        let (bytes, resident) = (bytes.min(self.bytes), resident.min(self.resident));
        self.chunks = self.chunks.saturating_sub(1);
        self.bytes -= bytes;
        self.resident -= resident;
        *to += Self::one(bytes, resident);
    }
}

impl std::ops::AddAssign for Line {
    fn add_assign(&mut self, other: Self) {
        self.chunks += other.chunks;
        self.bytes += other.bytes;
        self.resident += other.resident;
    }
}
