//! What malloc_trim would return: pure arithmetic over addresses and present pages.
//!
//! malloc_trim merges what lies in fastbins, returns the whole pages within every free chunk of every
//! arena, keeping the words at its start, and lowers the end of the main arena's heap to whole units
//! above the smallest chunk. It does not touch the tops of other arenas. The kernel refuses to take pages that are
//! locked in memory, except those above the end that brk lowers.

use crate::memory::Presence;

use super::layout::{FREE_CHUNK_HEAD_BYTES, MIN_CHUNK_BYTES};

/// Predicts for one process.
#[derive(Clone, Debug)]
pub struct Trimmer {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// What the main heap's end is lowered by multiples of: a page, or a huge page if these are requested.
    pub top_unit_bytes: u64,
    /// Where brk is. The main arena's top is lowered only if it ends there.
    pub brk: Option<u64>,
    /// Ranges that are locked in memory.
    pub locked: Vec<(u64, u64)>,
}

impl Default for Trimmer {
    fn default() -> Self {
        Self { page_bytes: 4096, top_unit_bytes: 4096, brk: None, locked: Vec::new() }
    }
}

impl Trimmer {
    /// Resident bytes that are returned of the free chunk `from..to`, and the bytes that locked pages keep.
    pub fn free_chunk(&self, presence: &Presence, from: u64, to: u64) -> (u64, u64) {
        let aligned = (from + FREE_CHUNK_HEAD_BYTES).next_multiple_of(self.page_bytes);
        let pages = to.saturating_sub(aligned) / self.page_bytes;
        self.apart(presence, aligned, aligned + pages * self.page_bytes)
    }

    /// Resident bytes that are returned of the main arena's top.
    pub fn main_top(&self, presence: &Presence, from: u64, to: u64) -> u64 {
        let spare = (to - from).saturating_sub(MIN_CHUNK_BYTES + 1);
        let extra = spare / self.top_unit_bytes * self.top_unit_bytes;
        if self.brk == Some(to) { presence.bytes(to - extra, to) } else { 0 }
    }

    /// Resident bytes of whole pages in the top of another arena, and the bytes that locked pages keep.
    pub fn secondary_top(&self, presence: &Presence, from: u64, to: u64) -> (u64, u64) {
        let aligned = (from + MIN_CHUNK_BYTES).next_multiple_of(self.page_bytes);
        self.apart(presence, aligned, to)
    }

    /// Resident bytes of `from..to` that one call returns, and the bytes that stay: the call ends at the first page
    /// that is locked.
    fn apart(&self, presence: &Presence, from: u64, to: u64) -> (u64, u64) {
        let locked = self.locked.iter();
        let locked = locked.filter(|(start, end)| *start < to && *end > from);
        let until = locked.map(|(start, _)| *start).min().unwrap_or(to);
        let until = until.max(from);
        (presence.bytes(from, until), presence.bytes(until, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fake::FakeMemory;

    const PAGE: u64 = 4096;
    const START: u64 = 16 * PAGE;

    /// Eight pages, all present but those numbered.
    fn presence(absent: &[u64]) -> Presence {
        let mut memory = FakeMemory::new();
        for page in (0..8).filter(|page| !absent.contains(page)) {
            memory.write(START + page * PAGE, &[1]);
        }
        Presence::read(&memory, START, START + 8 * PAGE).unwrap()
    }

    #[test]
    fn the_words_at_a_free_chunks_start_stay() {
        let trimmer = Trimmer::default();
        let returned = |from, to| trimmer.free_chunk(&presence(&[]), START + from, START + to).0;
        // 48 bytes before a page end at it; 16 bytes later they reach into it.
        assert_eq!(returned(PAGE - 48, 2 * PAGE), PAGE);
        assert_eq!(returned(PAGE - 32, 2 * PAGE), 0);
        assert_eq!(returned(PAGE - 32, 3 * PAGE), PAGE);
        assert_eq!(returned(PAGE - 48, 2 * PAGE - 16), 0);
        assert_eq!(returned(0, 8 * PAGE), 7 * PAGE);
    }

    #[test]
    fn pages_that_are_gone_do_not_count() {
        let trimmer = Trimmer::default();
        let presence = presence(&[2, 3]);
        assert_eq!(trimmer.free_chunk(&presence, START, START + 8 * PAGE), (5 * PAGE, 0));
        assert_eq!(trimmer.secondary_top(&presence, START, START + 8 * PAGE), (5 * PAGE, 0));
    }

    #[test]
    fn locked_pages_stay_but_for_those_behind_brk() {
        let end = START + 8 * PAGE;
        let trimmer = Trimmer {
            brk: Some(end),
            locked: vec![(START + 4 * PAGE, START + 6 * PAGE), (end, end + PAGE)],
            ..Trimmer::default()
        };
        let presence = presence(&[2, 4]);
        // The first page has the words at the chunk's start.
        let pages = trimmer.free_chunk(&presence, START, end);
        assert_eq!(pages, (2 * PAGE, 3 * PAGE), "up to the first that is locked");
        assert_eq!(trimmer.secondary_top(&presence, START + PAGE, end), (PAGE, 3 * PAGE));
        let above = (START + 6 * PAGE, START + 8 * PAGE);
        assert_eq!(trimmer.secondary_top(&presence, above.0, above.1), (PAGE, 0));
        assert_eq!(trimmer.main_top(&presence, START, end), 5 * PAGE);
    }

    #[test]
    fn the_main_end_is_lowered_by_whole_units_above_the_smallest_chunk() {
        let end = START + 8 * PAGE;
        let trimmer = |unit, brk| Trimmer { top_unit_bytes: unit, brk, ..Trimmer::default() };
        let small = || trimmer(PAGE, Some(end));
        let returned = |trimmer: Trimmer, bytes| trimmer.main_top(&presence(&[]), end - bytes, end);
        // One byte more than the smallest chunk must remain.
        assert_eq!(returned(small(), PAGE + 32), 0);
        assert_eq!(returned(small(), PAGE + 48), PAGE);
        assert_eq!(returned(small(), 16), 0);
        assert_eq!(returned(trimmer(4 * PAGE, Some(end)), 6 * PAGE), 4 * PAGE);
        assert_eq!(returned(trimmer(PAGE, Some(end + PAGE)), 6 * PAGE), 0);
        assert_eq!(returned(trimmer(PAGE, None), 6 * PAGE), 0);
    }
}
