//! The figures of a heap in detail, arena by arena, in jemalloc's words. An automatic arena is a shard of
//! the bins; extents and large blocks, which all shards share, are counted with the first.
//!
//! Taken lock by lock: each structure's figures are of one instant, not all of the same.

use super::Heap;
use crate::arena::extents::Extents;
use crate::cache::bins::SHARDS;
use crate::cache::cache::Cache;
use crate::cache::explicit::ExplicitArena;
use crate::os::Os;
use crate::size::large::{LARGE_CLASSES, LargeCount, LargeCounts};
use crate::size::{CLASS, CLASSES, GRANULE};
use crate::slab::bin::Bin;
use core::sync::atomic::Ordering;

/// Of one bin: a size class in one arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinFigures {
    /// Slots taken since the start, slots taken by threads' caches included.
    pub nmalloc: u64,
    /// Slots put back since the start.
    pub ndalloc: u64,
    /// Slots that are out: with the program, or in a thread's cache.
    pub curregs: usize,
    /// Refills of caches.
    pub nfills: u64,
    /// Batches that caches put back.
    pub nflushes: u64,
    /// Slabs made since the start.
    pub nslabs: u64,
    /// Times a refill went on with a slab that was there.
    pub nreslabs: u64,
    /// Slabs.
    pub curslabs: usize,
    /// Slabs with free slots.
    pub nonfull_slabs: usize,
}

/// Of one arena. Bytes unless said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaFigures {
    /// By class, from the smallest on.
    pub bins: [BinFigures; CLASSES],
    /// By class of large blocks.
    pub large: [LargeCount; LARGE_CLASSES],
    /// In slots that are out.
    pub small_allocated: usize,
    /// In large blocks.
    pub large_allocated: usize,
    /// Threads whose caches refill here (a number).
    pub threads: usize,
    /// In those caches.
    pub cached: usize,
    /// Resident pages of slabs, and large blocks.
    pub active: usize,
    /// Resident pages of free extents.
    pub dirty: usize,
    /// Free extents without pages.
    pub retained: usize,
    /// Address space of slabs, large blocks and dirty extents, and metadata.
    pub mapped: usize,
    /// Metadata that may be resident.
    pub metadata: usize,
    /// The part of `metadata` that is descriptors of granules.
    pub descriptors: usize,
    /// Passes that returned pages or looked for some (a number).
    pub purges: u64,
    /// The part of `purges` that the clock began (a number).
    pub ticks: u64,
    /// Calls that returned pages (a number).
    pub purge_calls: u64,
    /// Returned since the start.
    pub purged: u64,
}

impl ArenaFigures {
    /// An arena without anything.
    pub const NONE: Self = Self {
        bins: [BinFigures {
            nmalloc: 0,
            ndalloc: 0,
            curregs: 0,
            nfills: 0,
            nflushes: 0,
            nslabs: 0,
            nreslabs: 0,
            curslabs: 0,
            nonfull_slabs: 0,
        }; CLASSES],
        large: LargeCounts::NONE.classes,
        small_allocated: 0,
        large_allocated: 0,
        threads: 0,
        cached: 0,
        active: 0,
        dirty: 0,
        retained: 0,
        mapped: 0,
        metadata: 0,
        descriptors: 0,
        purges: 0,
        ticks: 0,
        purge_calls: 0,
        purged: 0,
    };

    /// In blocks that are out, of any size.
    pub fn allocated(&self) -> usize {
        self.small_allocated + self.large_allocated
    }

    /// Pages that are resident, as far as the allocator knows.
    pub fn resident(&self) -> usize {
        self.active + self.dirty + self.metadata
    }

    /// Adds another arena's figures.
    pub fn add(&mut self, other: &Self) {
        for (bin, more) in self.bins.iter_mut().zip(&other.bins) {
            bin.nmalloc += more.nmalloc;
            bin.ndalloc += more.ndalloc;
            bin.curregs += more.curregs;
            bin.nfills += more.nfills;
            bin.nflushes += more.nflushes;
            bin.nslabs += more.nslabs;
            bin.nreslabs += more.nreslabs;
            bin.curslabs += more.curslabs;
            bin.nonfull_slabs += more.nonfull_slabs;
        }
        for (class, more) in self.large.iter_mut().zip(&other.large) {
            class.made += more.made;
            class.freed += more.freed;
        }
        self.small_allocated += other.small_allocated;
        self.large_allocated += other.large_allocated;
        self.threads += other.threads;
        self.cached += other.cached;
        self.active += other.active;
        self.dirty += other.dirty;
        self.retained += other.retained;
        self.mapped += other.mapped;
        self.metadata += other.metadata;
        self.descriptors += other.descriptors;
        self.purges += other.purges;
        self.ticks += other.ticks;
        self.purge_calls += other.purge_calls;
        self.purged += other.purged;
    }
}

impl<O: Os> Heap<O> {
    /// The figures of now, into a place for each shard in use; how many those are. `own` is the calling
    /// thread's cache, if it has entered it; the caches of others are claimed to be looked at.
    pub fn figures(&self, own: Option<&Cache>, out: &mut [ArenaFigures; SHARDS]) -> usize {
        let shards = self.shards();
        *out = [ArenaFigures::NONE; SHARDS];
        self.parts.caches.by_cache(&self.os, own, |cache, bytes, is_thread| {
            if cache.home() == 0 {
                let arena = &mut out[usize::from(cache.shard()) % SHARDS];
                arena.threads += usize::from(is_thread);
                arena.cached += bytes;
            }
        });
        for (shard, arena) in out.iter_mut().enumerate().take(shards) {
            let bins = (1..=CLASSES).map(|class| (class, self.parts.bins.get(shard, class)));
            self.bin_figures(arena, bins);
        }
        self.shared_figures(&mut out[0]);
        shards
    }

    /// The figures of now of an explicit arena.
    pub fn explicit_figures(&self, own: Option<&Cache>, explicit: &ExplicitArena, arena: &mut ArenaFigures) {
        *arena = ArenaFigures::NONE;
        self.parts.caches.by_cache(&self.os, own, |cache, bytes, is_thread| {
            if cache.home() == explicit.home() {
                arena.threads += usize::from(is_thread);
                arena.cached += bytes;
            }
        });
        self.bin_figures(arena, explicit.bins());
        extent_figures(arena, &explicit.arena.lock(&self.os), 0, 0);
    }

    fn bin_figures<'a>(&self, arena: &mut ArenaFigures, bins: impl Iterator<Item = (usize, &'a Bin)>) {
        let page = self.os.page_bytes();
        for (class, bin) in bins {
            let slabs = bin.lock(&self.os);
            arena.bins[class - 1] = BinFigures {
                nmalloc: slabs.slots_taken,
                ndalloc: slabs.slots_taken - slabs.slots_out as u64,
                curregs: slabs.slots_out,
                nfills: slabs.refills,
                nflushes: slabs.flushes,
                nslabs: slabs.slabs_made,
                nreslabs: slabs.slabs_reused,
                curslabs: slabs.slabs,
                nonfull_slabs: slabs.slabs_with_room,
            };
            arena.small_allocated += slabs.slots_out * CLASS[class].size as usize;
            arena.active += slabs.resident_pages * page;
        }
    }

    fn shared_figures(&self, arena: &mut ArenaFigures) {
        let counters = &self.counters;
        arena.ticks = counters.ticks.load(Ordering::Relaxed);
        arena.purges = arena.ticks + counters.trims.load(Ordering::Relaxed);
        arena.purge_calls = counters.discard_calls.load(Ordering::Relaxed);
        arena.purged = counters.returned_bytes.load(Ordering::Relaxed);
        let metadata = self.metadata.bytes(&self.os).1;
        let outside = self.parts.outside.bytes() + self.parts.guarded.live_bytes();
        extent_figures(arena, &self.arena.lock(&self.os), outside, metadata);
        let page = self.os.page_bytes();
        let metadata = arena.metadata.next_multiple_of(page);
        arena.mapped += metadata - arena.metadata;
        arena.metadata = metadata;
    }
}

/// What extents say; `outside` and `metadata` are bytes in no arena that count for this one.
fn extent_figures(arena: &mut ArenaFigures, extents: &Extents, outside: usize, metadata: usize) {
    arena.large = extents.large_counts.classes;
    arena.large_allocated = extents.large_bytes + outside;
    arena.active += extents.large_bytes + outside;
    arena.dirty = (extents.dirty_granules + extents.leaving_granules) * GRANULE;
    arena.retained = extents.clean_granules * GRANULE;
    arena.descriptors = extents.metadata_bytes();
    arena.metadata = metadata + arena.descriptors;
    let address_space = extents.mapped_bytes() + outside + arena.metadata;
    arena.mapped = address_space - arena.retained;
}
