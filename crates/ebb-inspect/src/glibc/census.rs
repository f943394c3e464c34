//! Counts the chunks of a heap by what they are, and joins free neighbours as malloc_trim will.
//!
//! Filled by `walk`, chunk after chunk in the order of addresses; read by the breakdown.

use crate::breakdown::{Breakdown, Line};
use crate::heap::Trim;
use crate::memory::Presence;

use super::fast::{self, Fast, Known};
use super::heaps::Heap;
use super::layout::HEADER_BYTES;
use super::sizes::Sizes;
use super::trim::Trimmer;
use super::walk::{Chunk, Visitor};

/// Blocks from this size on are listed one by one, so many at most.
const LARGE_BYTES: u64 = 1 << 20;
const MAX_LARGE: usize = 1 << 14;
/// Chunks that hold a thread's cache perhaps: more than any process has threads.
const MAX_CANDIDATES: usize = 1 << 16;

/// What was counted in one heap, or in several.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Lines, but for what only the whole heap tells: resident bytes in use.
    pub breakdown: Breakdown,
    /// Chunks that are mappings of their own, and whether all of them were found.
    pub mmapped: Line,
    pub mmapped_complete: bool,
    /// Bytes that malloc counts as its own and that were not found: heaps without a way to them, and what is missing of
    /// `mmapped`. How much of that is resident is not known.
    pub missing: u64,
    /// What a trim would do.
    pub trim: Trim,
    /// Sizes of chunks in use.
    pub sizes: Sizes,
    /// Large blocks in use: addresses as the program knows them, and bytes.
    pub large: Vec<(u64, u64)>,
    /// Chunks in use that have the size of a thread's cache.
    pub candidates: Vec<u64>,
    candidate_bytes: u64,
    /// Where a run of free neighbours began.
    run: Option<u64>,
    trimmer: Trimmer,
}

impl Census {
    /// A census without a chunk. `candidate_bytes` is the size of a chunk with a thread's cache.
    pub fn new(candidate_bytes: u64, trimmer: Trimmer) -> Self {
        Self { candidate_bytes, trimmer, ..Self::default() }
    }

    /// Begins `heap`: what lies before its first chunk.
    pub fn begin(&mut self, presence: &Presence, heap: &Heap) {
        if heap.first > heap.start {
            self.breakdown.overhead.add(heap.start, heap.first, presence);
        }
    }

    /// A chunk in a bin.
    pub fn free(&mut self, presence: &Presence, from: u64, to: u64) {
        self.breakdown.free.add(from, to, presence);
        self.run.get_or_insert(from);
    }

    /// A chunk in a fastbin, which a trim merges first.
    pub fn fast(&mut self, presence: &Presence, from: u64, to: u64) {
        self.breakdown.fastbins.add(from, to, presence);
        self.run.get_or_insert(from);
    }

    /// A chunk in use. Its residency is what remains of the heap's.
    pub fn in_use(&mut self, presence: &Presence, from: u64, to: u64) {
        self.breakdown.live.chunks += 1;
        self.breakdown.live.bytes += to - from;
        self.sizes.count(to - from);
        self.large(from, to);
        if self.run.is_some() {
            self.end_run(presence, from);
        }
        // A chunk takes 16 bytes more where what would remain is too small for a chunk.
        let more = (to - from).wrapping_sub(self.candidate_bytes);
        if (more == 0 || more == HEADER_BYTES) && self.candidates.len() < MAX_CANDIDATES {
            self.candidates.push(from);
        }
    }

    /// A chunk that is in use or in a fastbin: that was not found out.
    pub fn unknown(&mut self, presence: &Presence, from: u64, to: u64) {
        self.end_run(presence, from);
        self.breakdown.unread.add(from, to, presence);
    }

    /// A chunk in use whose block may be one of those that are listed.
    pub fn large(&mut self, from: u64, to: u64) {
        if to - from >= LARGE_BYTES && self.large.len() < MAX_LARGE {
            self.large.push((from + HEADER_BYTES, to - from - HEADER_BYTES));
        }
    }

    /// The top chunk of the main arena or of another.
    pub fn top(&mut self, presence: &Presence, from: u64, to: u64, is_main: bool) {
        let merged = self.run.take().unwrap_or(from);
        if is_main {
            self.breakdown.main_top.add(from, to, presence);
            self.trim.returns += self.trimmer.main_top(presence, merged, to);
        } else {
            self.breakdown.secondary_tops.add(from, to, presence);
            let (free, locked) = self.trimmer.secondary_top(presence, merged, to);
            self.trim.secondary_tops += free;
            self.trim.locked += locked;
        }
    }

    /// What closes a heap.
    pub fn overhead(&mut self, presence: &Presence, from: u64, to: u64) {
        self.end_run(presence, from);
        self.breakdown.overhead.add(from, to, presence);
    }

    /// Bytes that were not walked.
    pub fn unread(&mut self, presence: &Presence, from: u64, to: u64) {
        self.breakdown.unread.add(from, to, presence);
    }

    /// The chain ended here: a run before it counts up to `at`.
    pub fn cut(&mut self, presence: &Presence, at: u64) {
        self.end_run(presence, at);
    }

    /// The heap is done: what is resident and neither free nor overhead is in use.
    pub fn close(&mut self, presence: &Presence, heap: &Heap) {
        self.breakdown.system.add(heap.start, heap.end, presence);
        self.breakdown.system.chunks = 0;
        let others = self.breakdown.resident_but_live();
        self.breakdown.live.resident = self.breakdown.system.resident.saturating_sub(others);
    }

    /// Adds what was counted in another heap.
    pub fn merge(&mut self, other: Self) {
        self.breakdown += &other.breakdown;
        self.trim.returns += other.trim.returns;
        self.trim.secondary_tops += other.trim.secondary_tops;
        self.trim.locked += other.trim.locked;
        self.sizes.add(&other.sizes);
        self.candidates.extend(other.candidates);
        self.large.extend(other.large);
    }

    fn end_run(&mut self, presence: &Presence, to: u64) {
        if let Some(from) = self.run.take() {
            let (returns, locked) = self.trimmer.free_chunk(presence, from, to);
            self.trim.returns += returns;
            self.trim.locked += locked;
        }
    }
}

/// Counts what a walk meets.
#[derive(Debug)]
pub struct Counting<'a> {
    /// Where it is counted.
    pub census: &'a mut Census,
    /// The heap's present pages.
    pub presence: &'a Presence,
    /// The arena's chunks in fastbins.
    pub fast: &'a Fast,
    /// Whether the heap is the main arena's.
    pub is_main: bool,
}

impl Visitor for Counting<'_> {
    fn chunk(&mut self, Chunk { at, next, is_free, .. }: Chunk) {
        let Self { census, presence, .. } = self;
        let may_be_fast = next - at <= fast::MAX_BYTES;
        if is_free {
            census.free(presence, at, next);
        } else if may_be_fast && self.fast.has(at) {
            census.fast(presence, at, next);
        } else if may_be_fast && self.fast.known() == Known::Cut {
            census.unknown(presence, at, next);
        } else {
            census.in_use(presence, at, next);
        }
    }

    fn top(&mut self, from: u64, to: u64) {
        self.census.top(self.presence, from, to, self.is_main);
    }

    fn fence(&mut self, from: u64, to: u64) {
        self.census.overhead(self.presence, from, to);
    }

    fn cut(&mut self, at: u64) {
        self.census.cut(self.presence, at);
    }

    fn unread(&mut self, from: u64, to: u64) {
        self.census.unread(self.presence, from, to);
    }
}
