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

    /// A chunk in use whose block may be a listed one.
    pub fn large(&mut self, from: u64, to: u64) {
        if to - from >= LARGE_BYTES && self.large.len() < MAX_LARGE {
            self.large.push((from + HEADER_BYTES, to - from - HEADER_BYTES));
        }
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
}

/// Counts what a walk meets in one heap.
#[derive(Debug)]
pub struct Counting<'a> {
    /// Where it is counted.
    pub census: Census,
    /// The heap and its present pages.
    pub heap: &'a Heap,
    pub presence: &'a Presence,
    /// The arena's chunks in fastbins.
    pub fast: &'a Fast,
}

impl Counting<'_> {
    /// Begins the heap: what lies before its first chunk.
    pub fn begin(&mut self) {
        if self.heap.first > self.heap.start {
            let overhead = &mut self.census.breakdown.overhead;
            overhead.add(self.heap.start, self.heap.first, self.presence);
        }
    }

    /// The heap is done: what is resident and neither free nor overhead is in use.
    pub fn close(mut self) -> Census {
        let breakdown = &mut self.census.breakdown;
        breakdown.system.add(self.heap.start, self.heap.end, self.presence);
        breakdown.system.chunks = 0;
        let others = breakdown.resident_but_live();
        breakdown.live.resident = breakdown.system.resident.saturating_sub(others);
        self.census
    }

    /// A chunk in use. Its residency is what remains of the heap's.
    fn in_use(&mut self, from: u64, to: u64) {
        self.cut(from);
        let census = &mut self.census;
        census.breakdown.live.chunks += 1;
        census.breakdown.live.bytes += to - from;
        census.sizes.count(to - from);
        census.large(from, to);
        // A chunk takes 16 bytes more where what would remain is too small for a chunk.
        let more = (to - from).wrapping_sub(census.candidate_bytes);
        if (more == 0 || more == HEADER_BYTES) && census.candidates.len() < MAX_CANDIDATES {
            census.candidates.push(from);
        }
    }
}

impl Visitor for Counting<'_> {
    fn chunk(&mut self, Chunk { at, next, is_free, .. }: Chunk) {
        let may_be_fast = next - at <= fast::MAX_BYTES;
        let breakdown = &mut self.census.breakdown;
        if is_free {
            breakdown.free.add(at, next, self.presence);
            self.census.run.get_or_insert(at);
        } else if may_be_fast && self.fast.has(at) {
            // A trim merges it first.
            breakdown.fastbins.add(at, next, self.presence);
            self.census.run.get_or_insert(at);
        } else if may_be_fast && self.fast.known() == Known::Cut {
            // In use or in a fastbin: that was not found out.
            self.cut(at);
            self.unread(at, next);
        } else {
            self.in_use(at, next);
        }
    }

    fn top(&mut self, from: u64, to: u64) {
        let census = &mut self.census;
        let merged = census.run.take().unwrap_or(from);
        if self.heap.is_main {
            census.breakdown.main_top.add(from, to, self.presence);
            census.trim.returns += census.trimmer.main_top(self.presence, merged, to);
        } else {
            census.breakdown.secondary_tops.add(from, to, self.presence);
            let (free, locked) = census.trimmer.secondary_top(self.presence, merged, to);
            census.trim.secondary_tops += free;
            census.trim.locked += locked;
        }
    }

    fn fence(&mut self, from: u64, to: u64) {
        self.cut(from);
        self.census.breakdown.overhead.add(from, to, self.presence);
    }

    /// A run of free neighbours ends.
    fn cut(&mut self, at: u64) {
        let census = &mut self.census;
        if let Some(from) = census.run.take() {
            let (returns, locked) = census.trimmer.free_chunk(self.presence, from, at);
            census.trim.returns += returns;
            census.trim.locked += locked;
        }
    }

    fn unread(&mut self, from: u64, to: u64) {
        self.census.breakdown.unread.add(from, to, self.presence);
    }
}
