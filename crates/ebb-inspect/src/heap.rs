//! What an allocator holds, in the terms that all readers share, and why there is nothing to tell.
//!
//! Every reader returns a [`Heap`]. It is the layout of a heap in the files that `ebb snap` writes as well.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::breakdown::{Breakdown, Line};
use crate::memory::Unreadable;

/// Why the memory of an allocator, or of CPython, was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The process has no glibc that could be recognised.
    #[error("it has no glibc")]
    NoGlibc,
    /// No file of the process defines `_PyRuntime`.
    #[error("it has no CPython")]
    NoPython,
    /// It is not in the process, or has not been used yet.
    #[error("no {0} that has served a request was found")]
    NotThere(&'static str),
    /// It is there, and its structures are not where any known version has them.
    #[error("{0}: the layout of its structures is not known")]
    Layout(String),
    /// A version or a kind of build that is not known, in words.
    #[error("{0}")]
    Build(String),
    /// Its structures were read, and contradict each other: a process that changes too fast, or a build of its own.
    #[error("{0}")]
    Contradicts(String),
    /// The process's memory is closed or gone.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// What an allocator holds of a process's memory; all of it resident bytes, so that the parts add up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heap {
    /// Who says so: `glibc 2.36`, `ebbmalloc's counters`.
    pub reader: String,
    /// Resident bytes of its regions, the sum of what follows up to `unread`.
    pub resident: u64,
    /// In blocks that the program has and has not freed.
    pub live: u64,
    /// Whole free pages that `malloc_trim` returns.
    pub trimmable: u64,
    /// Free pages at the ends of secondary arenas, which only a lower trim threshold returns.
    pub tops: u64,
    /// Free bytes on pages that live blocks use as well.
    pub pinned: u64,
    /// Freed bytes that threads' caches and fast bins hold.
    pub cached: u64,
    /// Whole free pages that an allocator other than glibc's keeps, to use or return later: jemalloc's dirty pages,
    /// mimalloc's before their purge, tcmalloc's free spans.
    #[serde(default)]
    pub kept: u64,
    /// Free pages that it returned lazily (MADV_FREE): the kernel takes them when memory is short.
    #[serde(default)]
    pub lazy: u64,
    /// Whole free pages that are locked in memory (mlock): the kernel refuses to take them back.
    #[serde(default)]
    pub locked: u64,
    /// The allocator's own bookkeeping, if it is known separately.
    pub metadata: u64,
    /// Not read: torn while the program ran, or put there by others.
    pub unread: u64,
    /// Bytes that the allocator counts as its own and that were not found: as far as they are resident they lie in the process's
    /// other anonymous memory. Not a part of `resident`.
    #[serde(default)]
    pub missing: u64,
    /// Free bytes whose pages are not resident: nothing to gain there.
    pub free_not_resident: u64,
    /// Arenas, where it has such.
    pub arenas: Option<u64>,
    /// Free blocks that `malloc_trim` would look at, where it is one that returns them.
    #[serde(default)]
    pub free_blocks: Option<u64>,
    /// Idle pages are returned after this time; absent where they stay.
    #[serde(default)]
    pub returns_within_ms: Option<u64>,
    /// The most that these figures may be off, as a part of `resident`.
    pub error: f64,
    /// What else the reader found out, in words: thresholds, what is missing.
    pub notes: Vec<String>,
    /// The allocator's settings in force, under its own names; only the known ones.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The environment's variable from which it takes settings, where it takes them so.
    #[serde(default)]
    pub settings_variable: Option<String>,
    /// Huge pages that glibc's malloc asks the kernel for; absent where it asks for none.
    #[serde(default)]
    pub huge_pages: Option<HugePages>,
    /// Live blocks by the upper bound of their size class: count and bytes; empty where not read.
    pub classes: BTreeMap<u64, Class>,
    /// Large live blocks, addresses and bytes: for the readers of the same look, never written down.
    #[serde(skip)]
    pub large: Vec<(u64, u64)>,
    /// The same memory with its address space, by what the allocator's structures say; never written down.
    #[serde(skip)]
    pub breakdown: Breakdown,
    /// Structures that were torn, so that what they tell of is missing.
    #[serde(skip)]
    pub torn: u64,
    /// What glibc's reader alone finds out.
    #[serde(skip)]
    pub glibc: Option<Glibc>,
}

/// Blocks of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Number of objects or blocks.
    pub count: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
}

/// Huge pages in the arenas of glibc's malloc (`glibc.malloc.hugetlb=1`, since 2.43 the default on aarch64).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePages {
    /// Bytes of the arenas that are resident in huge pages.
    pub resident: u64,
    /// The most of them that can be free.
    pub free: u64,
}

/// What glibc's reader alone finds out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glibc {
    /// Chunks that are mappings of their own. Not part of the breakdown; `resident` counts the ones found.
    pub mmapped: Line,
    /// Whether `mmapped` was found in full.
    pub mmapped_complete: bool,
    /// What malloc_trim(0) would do now.
    pub trim: Trim,
    /// The settings that decide when malloc returns memory by itself; `None` if they were not found.
    pub thresholds: Option<Thresholds>,
    /// Threads' caches that hold something.
    pub caches: u64,
    /// How well it could be read.
    pub quality: Quality,
}

/// What malloc_trim(0) would do, in resident bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trim {
    /// Resident bytes that it would return: whole pages within free chunks, and the main arena's end.
    pub returns: u64,
    /// Resident whole pages at the ends of the other arenas: free, and it does not touch them. Only a
    /// lower trim threshold returns them.
    pub secondary_tops: u64,
    /// Resident whole free pages that no trim returns because they are locked in memory (mlock), or lie after one
    /// that is in the same free chunk.
    pub locked: u64,
}

/// When glibc's malloc returns memory by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// How well a heap of glibc could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// Places where the chain of chunks broke and stayed broken.
    pub breaks: u64,
    /// Whether all chunks in fastbins are known; if not, some of them are counted as in use, or as unread where `counted` is false.
    pub fastbins_complete: bool,
    /// Whether there was time and room to count all blocks. What was not counted is unread.
    pub counted: bool,
    /// Bytes of heap pages that are in swap, which were not read.
    pub swapped_bytes: u64,
}

impl Heap {
    /// The heap of an allocator other than glibc's.
    pub(crate) fn of(reader: impl Into<String>, breakdown: Breakdown) -> Self {
        Self {
            reader: reader.into(),
            resident: breakdown.system.resident,
            live: breakdown.live.resident,
            pinned: breakdown.free.resident,
            cached: breakdown.cached.resident,
            // Returned pages are absent, except where huge pages were put there again.
            kept: breakdown.kept.resident + breakdown.returned.resident,
            lazy: breakdown.lazy.resident,
            metadata: breakdown.overhead.resident,
            free_not_resident: breakdown.free_not_resident(),
            breakdown,
            ..Self::default()
        }
    }

    /// The heaps of two allocators in one process, as one.
    pub fn with(mut self, other: Self) -> Self {
        self.reader = format!("{} and {}", self.reader, other.reader);
        self.resident += other.resident;
        self.live += other.live;
        self.trimmable += other.trimmable;
        self.tops += other.tops;
        self.pinned += other.pinned;
        self.cached += other.cached;
        self.kept += other.kept;
        self.lazy += other.lazy;
        self.locked += other.locked;
        self.metadata += other.metadata;
        self.unread += other.unread;
        self.missing = self.missing.saturating_add(other.missing);
        self.free_not_resident += other.free_not_resident;
        self.arenas = Option::zip(self.arenas, other.arenas).map(|(one, two)| one + two);
        self.free_blocks = self.free_blocks.or(other.free_blocks);
        self.error = self.error.max(other.error);
        self.notes.extend(other.notes);
        self.settings.extend(other.settings);
        self.settings_variable = self.settings_variable.or(other.settings_variable);
        self.huge_pages = self.huge_pages.or(other.huge_pages);
        for (size, class) in other.classes {
            let sum = self.classes.entry(size).or_default();
            sum.count += class.count;
            sum.bytes += class.bytes;
        }
        self.large.extend(other.large);
        self.breakdown += &other.breakdown;
        self.torn += other.torn;
        self.glibc = self.glibc.or(other.glibc);
        self
    }
}

/// How often a heap is read whose figures contradict each other: the process runs meanwhile.
const ATTEMPTS: u32 = 3;

/// What `once` reads as soon as its figures agree; it says in words how they contradict each other.
pub(crate) fn consistent(once: impl Fn() -> Result<Result<Heap, String>, Unreadable>) -> Result<Heap, Unsupported> {
    let mut contradiction = String::new();
    for _ in 0..ATTEMPTS {
        match once()? {
            Ok(heap) => return Ok(heap),
            Err(why) => contradiction = why,
        }
    }
    Err(Unsupported::Contradicts(contradiction))
}

/// Counts of live blocks by their size class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes(pub(crate) BTreeMap<u64, Class>);

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
        let class = self.0.entry(up_to).or_default();
        class.count += blocks;
        class.bytes = class.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_to_what_is_resident() {
        let line = |resident| Line { chunks: 1, bytes: resident + 10, resident };
        let breakdown = Breakdown {
            system: line(127),
            live: line(1),
            cached: line(2),
            free: line(4),
            kept: line(8),
            lazy: line(16),
            returned: line(32),
            overhead: line(64),
            ..Breakdown::default()
        };
        let heap = Heap::of("jemalloc 5.3.0", breakdown);
        let parts = heap.live + heap.pinned + heap.cached + heap.kept + heap.lazy + heap.metadata;
        assert_eq!(parts, heap.resident);
        assert_eq!(heap.free_not_resident, 40);
    }
}
