//! What a slow operation looks at when it is done: how much was freed, and whether the heap has
//! taken so many fresh pages that something should be looked at. Both are in one word, so that the
//! look costs one load.
//!
//! Pages are fresh when they were not resident before: from address space that was never used, from
//! clean extents, and returned pages of slabs. They become resident when they are touched, soon.

use super::{Arena, GROWTH_STEP};
use crate::base::sync::Ordering as SeamOrdering;
use crate::os::Os;
use core::sync::atomic::Ordering;

/// In `freed_bytes`: the heap has grown up to the mark. Out of the way of any number of bytes.
const GROWN: usize = 1 << (usize::BITS - 2);

impl Arena {
    /// Counts the bytes of slots that fit into a cache's new stack as freed. Frees into that room cause no flush, and only
    /// flushes are counted: threads that free a little each would never wake the purger.
    pub(crate) fn note_room(&self, bytes: usize) {
        self.freed_bytes.fetch_add(bytes, SeamOrdering::Relaxed);
    }

    /// Counts pages that will become resident.
    pub(crate) fn note_fresh(&self, bytes: usize) {
        let fresh = self.fresh_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mark = self.growth_mark.load(Ordering::Relaxed).wrapping_add(GROWTH_STEP);
        if fresh >= mark && self.freed_bytes.load(SeamOrdering::Relaxed) & GROWN == 0 {
            self.freed_bytes.fetch_or(GROWN, SeamOrdering::Relaxed);
        }
    }

    /// Bytes of fresh pages taken since the start.
    pub fn fresh_bytes(&self) -> usize {
        self.fresh_bytes.load(Ordering::Relaxed)
    }

    /// The next look is due when [`Arena::fresh_bytes`] comes to `mark`.
    pub fn set_growth_mark(&self, mark: usize) {
        self.growth_mark.store(mark.wrapping_sub(GROWTH_STEP), Ordering::Relaxed);
    }

    /// Bytes freed since the last tick, and far more once the heap has grown up to the mark: one load
    /// tells whether there is anything to do.
    pub fn attention(&self) -> usize {
        self.freed_bytes.load(SeamOrdering::Relaxed)
    }

    /// Bytes freed into slabs and extents since the last tick.
    pub fn freed_bytes(&self) -> usize {
        self.attention() & !GROWN
    }

    /// Counts what was freed and taken in `other` since this was last called; whether anything was.
    pub(crate) fn take_over(&self, other: &Self) -> bool {
        let freed = other.freed_bytes.swap(0, SeamOrdering::Relaxed) & !GROWN;
        let fresh = other.fresh_bytes.swap(0, Ordering::Relaxed);
        if freed > 0 {
            self.freed_bytes.fetch_add(freed, SeamOrdering::Relaxed);
        }
        if fresh > 0 {
            self.note_fresh(fresh);
        }
        freed > 0 || fresh > 0
    }

    /// A pass begins: memory freed from here on is for the next pass.
    pub fn reset_freed(&self) {
        self.freed_bytes.fetch_and(GROWN, SeamOrdering::Relaxed);
    }

    /// Whether the heap has grown up to the mark; true once for each time.
    pub fn take_growth(&self) -> bool {
        self.attention() & GROWN != 0 && self.freed_bytes.fetch_and(!GROWN, SeamOrdering::Relaxed) & GROWN != 0
    }

    /// Whether [`Arena::purge`] would find pages to return.
    pub fn has_dirty<O: Os>(&self, os: &O) -> bool {
        let extents = self.lock(os);
        !extents.aging.is_empty() || !extents.tails.is_empty()
    }
}
