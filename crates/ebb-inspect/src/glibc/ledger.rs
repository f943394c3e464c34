//! Where the bytes of a glibc heap are. Plain figures that add up.

use serde::Serialize;

use crate::line::Line;

/// Where the bytes of all arenas are. The lines add up to `system`, see [`Ledger::adds_up`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// What the arenas took from the kernel, as glibc counts it (`mallinfo2.arena`), and how much of it
    /// is resident.
    pub system: Line,
    /// Allocated by the program, malloc's own structures in chunks included.
    pub in_use: Line,
    /// Free, in threads' caches. glibc itself counts them as in use.
    pub tcache: Line,
    /// Free, in fastbins: not merged with their neighbours yet.
    pub fastbins: Line,
    /// Free, in bins.
    pub free: Line,
    /// Free, at the end of the main arena.
    pub main_top: Line,
    /// Free, at the ends of the other arenas, where malloc_trim does not go.
    pub secondary_tops: Line,
    /// Heads of heaps and what closes them.
    pub overhead: Line,
    /// Not walked: swapped out, torn while the process ran, or put there by others (brk).
    pub unread: Line,
    /// Chunks that are mappings of their own. Not part of `system`; `resident` counts those that were found.
    pub mmapped: Line,
    /// Whether `mmapped` was found in full.
    pub mmapped_complete: bool,
    /// Bytes that malloc counts as its own and that were not found: heaps without a way to them, and what is missing of
    /// `mmapped`. How much of that is resident is not known.
    pub missing: u64,
}

impl Ledger {
    /// Whether the lines add up, in bytes and in resident bytes.
    pub fn adds_up(&self) -> bool {
        let sum = |figure: fn(&Line) -> u64| {
            self.parts().iter().map(figure).sum::<u64>() == figure(&self.system)
        };
        sum(|line| line.bytes) && sum(|line| line.resident)
    }

    /// Free bytes as `mallinfo2.fordblks` has them: tops, bins, fastbins.
    pub fn mallinfo_free(&self) -> u64 {
        self.main_top.bytes + self.secondary_tops.bytes + self.free.bytes + self.fastbins.bytes
    }

    /// Bytes in use as `mallinfo2.uordblks` has them: all others, tcaches included.
    pub fn mallinfo_in_use(&self) -> u64 {
        self.system.bytes.saturating_sub(self.mallinfo_free())
    }

    /// Resident bytes of all lines but `in_use`.
    pub(super) fn resident_but_in_use(&self) -> u64 {
        let sum: u64 = self.parts().iter().map(|line| line.resident).sum();
        sum - self.in_use.resident
    }

    /// Adds another ledger's lines, those of mappings apart.
    pub(super) fn add(&mut self, other: &Self) {
        self.system += other.system;
        self.in_use += other.in_use;
        self.tcache += other.tcache;
        self.fastbins += other.fastbins;
        self.free += other.free;
        self.main_top += other.main_top;
        self.secondary_tops += other.secondary_tops;
        self.overhead += other.overhead;
        self.unread += other.unread;
    }

    /// Resident free bytes that glibc may merge and return: all but those in threads' caches.
    pub fn free_resident(&self) -> u64 {
        self.main_top.resident
            + self.secondary_tops.resident
            + self.free.resident
            + self.fastbins.resident
    }

    fn parts(&self) -> [Line; 8] {
        [
            self.in_use,
            self.tcache,
            self.fastbins,
            self.free,
            self.main_top,
            self.secondary_tops,
            self.overhead,
            self.unread,
        ]
    }
}

/// What malloc_trim(0) would do, in resident bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trim {
    /// Resident bytes that it would return: whole pages within free chunks, and the main arena's end.
    pub returns: u64,
    /// Resident whole pages at the ends of the other arenas: free, and it does not touch them. Only a
    /// lower trim threshold returns them.
    pub secondary_tops: u64,
    /// Resident free bytes on pages that also hold something else: no trim returns them.
    pub pinned: u64,
    /// Resident whole free pages that no trim returns because they are locked in memory (mlock), or lie after one
    /// that is in the same free chunk.
    pub locked: u64,
}

impl Trim {
    pub(super) fn add(&mut self, other: &Self) {
        self.returns += other.returns;
        self.secondary_tops += other.secondary_tops;
        self.pinned += other.pinned;
        self.locked += other.locked;
    }
}

/// When malloc returns memory by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Thresholds {
    /// The end of an arena is returned when it is larger than this.
    pub trim_threshold: u64,
    /// Requests of this size or more are mapped separately and unmapped when they are freed.
    pub mmap_threshold: u64,
    /// Whether both still follow the largest such block that was freed.
    pub dynamic: bool,
    /// Limit of the number of arenas, 0 for 8 a core.
    pub arena_max: u64,
}
