//! What malloc_trim would return: pure arithmetic over addresses and present pages.
//!
//! malloc_trim merges what lies in fastbins, returns the whole pages within every free chunk of every
//! arena, keeping the words at its start, and lowers the end of the main arena's heap to whole units
//! above the smallest chunk. It does not touch the tops of other arenas.

use crate::memory::Presence;

use super::layout::{FREE_CHUNK_HEAD_BYTES, MIN_CHUNK_BYTES};

/// Predicts for one process.
#[derive(Clone, Copy, Debug)]
pub struct Trimmer {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// What the main heap's end is lowered by multiples of: a page, or a huge page if these are asked for.
    pub top_unit_bytes: u64,
    /// Where brk is. The main arena's top is lowered only if it ends there.
    pub brk: Option<u64>,
}

impl Default for Trimmer {
    fn default() -> Self {
        Self {
            page_bytes: 4096,
            top_unit_bytes: 4096,
            brk: None,
        }
    }
}

impl Trimmer {
    /// Resident bytes that go back of the free chunk `from..to`.
    pub fn free_chunk(&self, presence: &Presence, from: u64, to: u64) -> u64 {
        let aligned = (from + FREE_CHUNK_HEAD_BYTES).next_multiple_of(self.page_bytes);
        let pages = to.saturating_sub(aligned) / self.page_bytes;
        presence.bytes(aligned, aligned + pages * self.page_bytes)
    }

    /// Resident bytes that go back of the main arena's top.
    pub fn main_top(&self, presence: &Presence, from: u64, to: u64) -> u64 {
        let spare = (to - from).saturating_sub(MIN_CHUNK_BYTES + 1);
        let extra = spare / self.top_unit_bytes * self.top_unit_bytes;
        if self.brk == Some(to) {
            presence.bytes(to - extra, to)
        } else {
            0
        }
    }

    /// Resident bytes of whole pages in the top of another arena.
    pub fn secondary_top(&self, presence: &Presence, from: u64, to: u64) -> u64 {
        let aligned = (from + MIN_CHUNK_BYTES).next_multiple_of(self.page_bytes);
        presence.bytes(aligned, to)
    }
}
