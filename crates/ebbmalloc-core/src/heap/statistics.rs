//! Figures of a heap, derived from what fill, flush and purge keep; the fast path counts nothing.

use super::Heap;
use crate::arena::extents::Extents;
use crate::cache::cache::Cache;
use crate::os::Os;
use crate::size::{CLASS, CLASSES, GRANULE};
use crate::slab::bin::Bin;
use core::sync::atomic::Ordering;

/// See each field. Bytes unless said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// In blocks that the program holds: slots and large blocks at their usable sizes.
    pub live: usize,
    /// Of `live`, in large blocks.
    pub live_large: usize,
    /// Large blocks (a number).
    pub large_blocks: usize,
    /// In thread caches.
    pub cached: usize,
    /// Free and resident: in slabs, also next to live slots, and in dirty extents.
    pub idle: usize,
    /// Of `idle`, on pages that hold nothing live or cached: what a trim returns.
    pub returnable: usize,
    /// Resident in the heap's own pages: live, cached and idle (large blocks counted in full).
    pub resident: usize,
    /// Address space made usable so far.
    pub mapped: usize,
    /// Free and not resident: in clean extents.
    pub retained: usize,
    /// Metadata committed.
    pub metadata: usize,
    /// Returned to the kernel so far.
    pub returned: u64,
    /// Taken again after it was returned: pages of slabs.
    pub refaulted: u64,
    /// Locked pages that the kernel refused to take back, so far.
    pub refused: u64,
    /// Calls that gave memory back (a number).
    pub discard_calls: u64,
    /// Ticks of the purger (a number).
    pub ticks: u64,
    /// Caches that the purger took (a number).
    pub claims: u64,
    /// Caches that it found in use (a number).
    pub claims_refused: u64,
    /// Threads with a cache (a number).
    pub threads: usize,
}

impl<O: Os> Heap<O> {
    /// The figures of now. Takes every lock of the heap in turn; `own` is the calling thread's cache,
    /// if it has entered it. With `exact` false the caches are not claimed, slabs are not searched for free pages,
    /// and the figures of the last pass are used.
    pub fn statistics(&self, own: Option<&Cache>, exact: bool) -> Statistics {
        let page = self.os.page_bytes();
        let (mut out, mut resident_pages, mut refaulted) = (0, 0, 0);
        let (cached, threads) = if exact {
            self.parts.caches.bytes(&self.os, own)
        } else {
            (self.counters.cached_bytes.load(Ordering::Relaxed), self.parts.caches.count(&self.os))
        };
        for (class, bin) in self.all_bins() {
            let slabs = bin.lock(&self.os);
            out += slabs.slots_out * CLASS[class].size as usize;
            resident_pages += slabs.resident_pages;
            refaulted += slabs.refaulted_pages;
        }
        let mut extents = ExtentBytes::default();
        extents.add(&self.arena.lock(&self.os));
        for arena in self.explicit_arenas() {
            extents.add(&arena.arena.lock(&self.os));
        }
        let ExtentBytes { large, blocks, dirty, clean, mapped, metadata } = extents;
        let slabs = resident_pages * page;
        let of_last_pass = || self.counters.free_page_bytes.load(Ordering::Relaxed);
        let free_pages = if exact { self.count_free_pages().unwrap_or_else(of_last_pass) } else { of_last_pass() };
        let idle = slabs.saturating_sub(out) + dirty;
        let large_and_outside = large + self.parts.outside.bytes();
        let counters = &self.counters;
        Statistics {
            live: out.saturating_sub(cached) + large_and_outside,
            live_large: large_and_outside,
            large_blocks: blocks,
            cached,
            idle,
            // What was taken from such pages since the last pass is not free any more.
            returnable: (free_pages + dirty).min(idle),
            resident: slabs + dirty + large_and_outside,
            mapped,
            retained: clean,
            metadata: self.metadata.bytes(&self.os).1 + metadata,
            returned: counters.returned_bytes.load(Ordering::Relaxed),
            refaulted: refaulted * page as u64,
            refused: counters.refused_bytes.load(Ordering::Relaxed),
            discard_calls: counters.discard_calls.load(Ordering::Relaxed),
            ticks: counters.ticks.load(Ordering::Relaxed),
            claims: counters.claims.load(Ordering::Relaxed),
            claims_refused: counters.claims_refused.load(Ordering::Relaxed),
            threads,
        }
    }
}

impl<O: Os> Heap<O> {
    /// Every bin of every arena, with its class.
    fn all_bins(&self) -> impl Iterator<Item = (usize, &Bin)> {
        let own = (0..self.shards())
            .flat_map(move |shard| (1..=CLASSES).map(move |class| (class, self.parts.bins.get(shard, class))));
        own.chain(self.explicit_arenas().flat_map(|arena| arena.bins()))
    }

    /// Bytes of resident pages inside slabs that hold nothing live or cached. `None` while others count for longer
    /// than is worth waiting for.
    pub(super) fn count_free_pages(&self) -> Option<usize> {
        const TURNS: usize = 10_000;
        let mut turns = 0..TURNS;
        // Acquire pairs with the release below: the cursors are one count's at a time.
        while self.parts.counting.swap(true, Ordering::Acquire) {
            turns.next()?;
            self.os.yield_now();
        }
        let pages: usize = self.all_bins().map(|(class, bin)| bin.free_pages(&self.os, class)).sum();
        self.parts.counting.store(false, Ordering::Release);
        Some(pages * self.os.page_bytes())
    }
}

/// What the extents of several arenas hold together.
#[derive(Default)]
struct ExtentBytes {
    large: usize,
    blocks: usize,
    dirty: usize,
    clean: usize,
    mapped: usize,
    metadata: usize,
}

impl ExtentBytes {
    fn add(&mut self, extents: &Extents) {
        self.large += extents.large_bytes;
        self.blocks += extents.large_blocks;
        self.dirty += (extents.dirty_granules + extents.leaving_granules) * GRANULE;
        self.clean += extents.clean_granules * GRANULE;
        self.mapped += extents.mapped_bytes();
        self.metadata += extents.metadata_bytes();
    }
}
