//! Where the bytes of an allocator's regions are. Plain figures that add up.

use crate::memory::Presence;

/// Bytes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

    fn absent(&self) -> u64 {
        self.bytes.saturating_sub(self.resident)
    }
}

impl std::ops::AddAssign for Line {
    fn add_assign(&mut self, other: Self) {
        self.chunks += other.chunks;
        self.bytes += other.bytes;
        self.resident += other.resident;
    }
}

/// Where the bytes of an allocator's regions are. The lines add up to `system`, see [`Breakdown::adds_up`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// All address space that the allocator's structures tell of, and how much of it is resident. For glibc: what
    /// the arenas took from the kernel (`mallinfo2.arena`).
    pub system: Line,
    /// In blocks that the program has and has not freed. For glibc without chunks that are mappings of their own.
    pub live: Line,
    /// Freed blocks in the caches of threads. glibc counts them as in use.
    pub cached: Line,
    /// glibc: free, in fastbins, not merged with their neighbours yet.
    pub fastbins: Line,
    /// Free blocks next to live ones: in slabs, pages or groups of their size. For glibc: in bins.
    pub free: Line,
    /// glibc: free, at the end of the main arena.
    pub main_top: Line,
    /// glibc: free, at the ends of the other arenas, where malloc_trim does not go.
    pub secondary_tops: Line,
    /// Free pages that the allocator keeps, to use them again or return them later.
    pub kept: Line,
    /// Free pages that it returned lazily: the kernel takes them when memory is short (MADV_FREE).
    pub lazy: Line,
    /// Free address space whose pages it returned, or never used.
    pub returned: Line,
    /// Its own structures, and what rounding leaves over. For glibc: heads of heaps and what closes them.
    pub overhead: Line,
    /// Not walked: swapped out, torn while the process ran, or put there by others (brk).
    pub unread: Line,
}

impl Breakdown {
    /// Whether the lines add up, in bytes and in resident bytes.
    pub fn adds_up(&self) -> bool {
        let sum = self.sum();
        (sum.bytes, sum.resident) == (self.system.bytes, self.system.resident)
    }

    /// Sets `system` to the sum of the lines.
    pub(crate) fn close(&mut self) {
        self.system = self.sum();
    }

    pub(crate) fn resident_but_live(&self) -> u64 {
        self.sum().resident - self.live.resident
    }

    /// The free lines of a glibc: tops, bins, fastbins.
    pub fn glibc_free(&self) -> Line {
        let mut free = self.main_top;
        free += self.secondary_tops;
        free += self.free;
        free += self.fastbins;
        free
    }

    pub(crate) fn free_not_resident(&self) -> u64 {
        self.glibc_free().absent() + self.kept.absent() + self.lazy.absent() + self.returned.absent()
    }

    fn sum(&self) -> Line {
        let mut sum = self.glibc_free();
        for part in [self.live, self.cached, self.kept, self.lazy, self.returned, self.overhead, self.unread] {
            sum += part;
        }
        sum
    }
}

impl std::ops::AddAssign<&Self> for Breakdown {
    fn add_assign(&mut self, other: &Self) {
        self.system += other.system;
        self.live += other.live;
        self.cached += other.cached;
        self.fastbins += other.fastbins;
        self.free += other.free;
        self.main_top += other.main_top;
        self.secondary_tops += other.secondary_tops;
        self.kept += other.kept;
        self.lazy += other.lazy;
        self.returned += other.returned;
        self.overhead += other.overhead;
        self.unread += other.unread;
    }
}
