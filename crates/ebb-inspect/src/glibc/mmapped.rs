//! Chunks that are mappings of their own: large blocks.
//!
//! No list leads to them. malloc counts them, so a search through the anonymous mappings is complete when
//! it has found that number and that many bytes; else it is a part and said to be one.
//!
//! The kernel joins mappings of the same kind that touch: a chunk may follow any number of pages that are
//! somebody else's, such as pymalloc's arenas, a runtime's heap or stacks. It also splits them: advice about huge pages, a
//! lock or other rights for a part of a chunk make several mappings of one. So mappings that touch are one run, and a
//! chunk may lie anywhere in a run. The first page of each mapping is looked at first, since most chunks begin there. Then every
//! present page on which no chunk has been seen to lie, the smallest mappings first, until all are found or [`MOST_TRIES`] and
//! [`MOST_PAGES`] are used up.

use std::collections::BTreeMap;

use crate::exact::usize_of;
use crate::memory::{Memory, Presence, Unreadable, unless_torn};
use crate::target::{Backing, Mapping};

use super::layout::{HEADER_BYTES, Layout};
use crate::breakdown::Line;

const IS_MMAPPED: u64 = 2;
const FLAGS: u64 = 7;
/// What chunks of huge pages are multiples of, on x86-64.
const LEAST_HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Present pages without a chunk that are looked at in a process: 512 MiB of others' memory. 1 GiB took 0.32 s of CPU on
/// an EPYC.
const MOST_TRIES: u64 = 1 << 17;
/// Pages whose presence is checked on the way, present or not: 32 GiB of address space. 64 GiB took 0.17 s of CPU.
const MOST_PAGES: u64 = 1 << 23;
/// Presence is checked piece by piece: where chunks are found little of it is needed.
const WINDOW_PAGES: u64 = 8192;
/// Copied at once, where chunks are rare.
const MOST_PIECE_PAGES: u64 = 64;

/// Finds the chunks that are mappings in `mappings`, up to `wanted` (chunks and bytes). Ranges in `heaps`
/// are left out. `each` gets every chunk's first address and its end.
pub fn find(
    memory: &dyn Memory,
    layout: &Layout,
    mappings: &[Mapping],
    heaps: &[(u64, u64)],
    wanted: (u64, u64),
    each: impl FnMut(u64, u64),
) -> Result<Line, Unreadable> {
    let mut search = Search {
        memory,
        layout,
        wanted,
        each,
        found: Line::default(),
        tries: MOST_TRIES,
        pages: MOST_PAGES,
        taken: BTreeMap::new(),
    };
    let mut own = ranges(mappings, heaps);
    for range in &own {
        search.heads(range)?;
    }
    own.sort_by_key(|range| range.end - range.start);
    for range in &own {
        search.range(range)?;
    }
    Ok(search.found)
}

/// A part of a mapping to search, and the bounds within which a chunk that has its header there must lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    run: (u64, u64),
}

/// What is to be searched: the mappings without `heaps`, each with the run that it is a part of.
fn ranges(mappings: &[Mapping], heaps: &[(u64, u64)]) -> Vec<Range> {
    let own = mappings.iter().filter(|mapping| !mapping.shared && mapping.backing == Backing::Anonymous);
    let mut runs: Vec<(u64, u64, Vec<&Mapping>)> = Vec::new();
    for mapping in own {
        match runs.last_mut() {
            Some((_, end, parts)) if *end == mapping.start => {
                *end = mapping.end;
                parts.push(mapping);
            }
            _ => runs.push((mapping.start, mapping.end, vec![mapping])),
        }
    }
    let mut ranges = Vec::new();
    for (start, end, parts) in runs {
        for run in without((start, end), heaps) {
            let readable = parts.iter().filter(|part| part.readable);
            let inside = readable.map(|part| Range { start: part.start.max(run.0), end: part.end.min(run.1), run });
            ranges.extend(inside.filter(|range| range.start < range.end));
        }
    }
    ranges
}

/// `range` less all `heaps`.
fn without((start, end): (u64, u64), heaps: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut inside: Vec<(u64, u64)> = heaps.to_vec();
    inside.retain(|heap| heap.0 < end && heap.1 > start);
    inside.sort_unstable();
    let mut at = start;
    let mut rest = Vec::new();
    for heap in inside {
        if heap.0 > at {
            rest.push((at, heap.0));
        }
        at = at.max(heap.1);
    }
    if at < end {
        rest.push((at, end));
    }
    rest
}

/// A chunk that is a mapping: the whole of it begins at `start`, its header at `header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chunk {
    start: u64,
    header: u64,
    end: u64,
}

/// A search under way, and what may still be spent on it.
struct Search<'a, F> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    wanted: (u64, u64),
    each: F,
    found: Line,
    tries: u64,
    pages: u64,
    /// The chunks that were found: first address and end.
    taken: BTreeMap<u64, u64>,
}

impl<F: FnMut(u64, u64)> Search<'_, F> {
    fn is_over(&self) -> bool {
        self.tries == 0 || self.pages == 0 || is_all(self.layout, &self.found, self.wanted)
    }

    /// Looks at the first page of `range`, and at the page after each chunk that is found.
    fn heads(&mut self, range: &Range) -> Result<(), Unreadable> {
        let page_bytes = self.memory.page_bytes();
        let mut at = range.start;
        while at < range.end && !self.is_over() {
            if let Some(end) = self.taken_at(at) {
                at = end;
                continue;
            }
            let window = Presence::read(self.memory, at, at + page_bytes)?;
            self.pages -= 1;
            if !window.is_present(at) {
                break;
            }
            match self.chunk_in((at, 1), self.bounds(at, range))? {
                Some(chunk) => at = self.take(chunk)?,
                None => break,
            }
        }
        Ok(())
    }

    fn range(&mut self, range: &Range) -> Result<(), Unreadable> {
        let page_bytes = self.memory.page_bytes();
        let mut at = range.start;
        while at < range.end && !self.is_over() {
            if let Some(end) = self.taken_at(at) {
                at = end;
                continue;
            }
            let free_until = self.bounds(at, range).1.min(range.end);
            let pages = WINDOW_PAGES.min((free_until - at) / page_bytes).min(self.pages);
            self.pages -= pages;
            let window = Presence::read(self.memory, at, at + pages * page_bytes)?;
            let mut piece = 1;
            while at < window.end() && !self.is_over() {
                let present = present_pages(&window, at, piece, page_bytes);
                if present == 0 {
                    at += page_bytes;
                    continue;
                }
                match self.chunk_in((at, present), self.bounds(at, range))? {
                    Some(chunk) => {
                        at = self.take(chunk)?;
                        piece = 1;
                    }
                    None => {
                        at += present * page_bytes;
                        self.tries = self.tries.saturating_sub(present);
                        piece = (piece * 2).min(MOST_PIECE_PAGES);
                    }
                }
            }
        }
        Ok(())
    }

    /// The end of the chunk that `at` lies in, if one was found there.
    fn taken_at(&self, at: u64) -> Option<u64> {
        let (_, &end) = self.taken.range(..=at).next_back()?;
        (at < end).then_some(end)
    }

    /// Within which addresses a chunk with its header at `at` must lie: the run, between the chunks that were found.
    fn bounds(&self, at: u64, range: &Range) -> (u64, u64) {
        let below = self.taken.range(..=at).next_back().map(|(_, &end)| end);
        let above = self.taken.range(at..).next().map(|(&start, _)| start);
        let (start, end) = range.run;
        (below.map_or(start, |below| below.max(start)), above.map_or(end, |above| above.min(end)))
    }

    /// Counts `chunk`; returns its end.
    fn take(&mut self, chunk: Chunk) -> Result<u64, Unreadable> {
        (self.each)(chunk.header, chunk.end);
        let presence = Presence::read(self.memory, chunk.start, chunk.end)?;
        self.found.add(chunk.start, chunk.end, &presence);
        self.taken.insert(chunk.start, chunk.end);
        Ok(chunk.end)
    }

    /// The first chunk whose header lies on one of `pages` pages from `at` on, within `floor..end`.
    fn chunk_in(&self, (at, pages): (u64, u64), (floor, end): (u64, u64)) -> Result<Option<Chunk>, Unreadable> {
        let page_bytes = self.memory.page_bytes();
        let mut bytes = vec![0; usize_of(pages * page_bytes)];
        let copied = self.memory.copy(&[(at, bytes.len())], &mut bytes);
        if unless_torn(copied)?.is_none() {
            return Ok(None);
        }
        let each_page = bytes.chunks_exact(usize_of(page_bytes));
        let mut chunks = (at..)
            .step_by(usize_of(page_bytes))
            .zip(each_page)
            .filter_map(|(at, page)| chunk_on(self.layout, page, at, (floor, end)));
        Ok(chunks.find(|it| self.found.bytes + (it.end - it.start) <= self.wanted.1))
    }
}

/// How many pages from `at` on are present, up to `most`.
fn present_pages(presence: &Presence, at: u64, most: u64, page_bytes: u64) -> u64 {
    (0..most).take_while(|page| presence.is_present(at + page * page_bytes)).count() as u64
}

/// Whether what was found is what malloc counted.
pub fn is_all(layout: &Layout, found: &Line, (chunks, bytes): (u64, u64)) -> bool {
    let is_sum = |found| bytes.checked_sub(found).is_some_and(|more| more <= layout.mmapped_drift_bytes());
    found.chunks == chunks && is_sum(found.bytes)
}

/// The chunk whose header lies on the page `at`, if there is one within `floor..end`.
///
/// Where a block must be aligned the chunk begins later than its mapping and says how much: the block then lies at
/// the first multiple of a power of two, and the header in front of it.
fn chunk_on(layout: &Layout, page: &[u8], at: u64, (floor, end): (u64, u64)) -> Option<Chunk> {
    let page_bytes = page.len() as u64;
    let aligned = (0..).map(|shift| HEADER_BYTES << shift).take_while(|&block| block <= page_bytes);
    for place in aligned.map(|block| block - HEADER_BYTES) {
        let word = |at: u64| {
            let at = usize_of(at);
            let bytes = page.get(at..at + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let (lead, size) = (word(place)?, word(place + 8)?);
        // The last bit says "huge page" since 2.43. Without it, or elsewhere, `1` is no lead but somebody's number.
        let is_huge = layout.mmapped_without_header && lead & 1 == 1;
        let (lead, header) = (lead & !u64::from(is_huge), at + place);
        let is_whole_pages = lead % page_bytes == place;
        let is_placed = lead == place || (place == page_bytes - HEADER_BYTES && is_whole_pages);
        if !is_placed || lead > header - floor || size & FLAGS != IS_MMAPPED {
            continue;
        }
        let behind = if layout.mmapped_without_header { HEADER_BYTES } else { 0 };
        let len = lead.checked_add(size & !FLAGS)?.checked_add(behind)?;
        let start = header - lead;
        let unit = if is_huge { LEAST_HUGE_PAGE_BYTES } else { page_bytes };
        if len > lead && len.is_multiple_of(unit) && len <= end - start {
            return Some(Chunk { start, header, end: start + len });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glibc::version::Version;
    use crate::memory::fake::{FakeMemory, mapping};

    const AT: u64 = 0x7f00_0000_0000;
    const PAGE_BYTES: usize = 4096;

    /// What `chunk_on` makes of a page that begins with two words, in a mapping of 8 MiB.
    fn on_page(minor: u32, first: u64, second: u64) -> Option<u64> {
        let layout = Layout::of(Version { major: 2, minor }).unwrap();
        let mut page = vec![0; PAGE_BYTES];
        page[..8].copy_from_slice(&first.to_ne_bytes());
        page[8..16].copy_from_slice(&second.to_ne_bytes());
        chunk_on(&layout, &page, AT, (AT, AT + (8 << 20))).map(|it| it.end - it.start)
    }

    #[test]
    fn a_header_is_told_by_its_size_and_flag() {
        assert_eq!(on_page(36, 0, 0x5000 | IS_MMAPPED), Some(0x5000));
        assert_eq!(on_page(36, 0, 0x5010 | IS_MMAPPED), None);
        assert_eq!(on_page(36, 0, 0x5000), None);
        assert_eq!(on_page(36, 0, 0x10_0000_0000 | IS_MMAPPED), None);
        assert_eq!(on_page(43, 0, 0x4ff0 | IS_MMAPPED), Some(0x5000));
    }

    /// An int of CPython is its length, 1, and its value. Where one lies across the beginning of a page it must not
    /// pass for a chunk.
    #[test]
    fn a_number_is_no_header() {
        assert_eq!(on_page(36, 1, 8194), None);
        assert_eq!(on_page(43, 1, 8194 - 16), None);
    }

    #[test]
    fn chunks_of_huge_pages_are_marked_since_2_43() {
        let two_mib = (2 << 20) - HEADER_BYTES;
        assert_eq!(on_page(43, 1, two_mib | IS_MMAPPED), Some(2 << 20));
        assert_eq!(on_page(36, 1, (2 << 20) | IS_MMAPPED), None);
    }

    const PAGE: u64 = PAGE_BYTES as u64;

    /// What is found of chunks of these first pages and numbers of pages, in mappings of these first pages and numbers.
    fn found(chunks: &[(u64, u64)], mappings: &[(u64, u64)], heaps: &[(u64, u64)]) -> (u64, u64) {
        let layout = Layout::of(Version { major: 2, minor: 36 }).unwrap();
        let mut memory = FakeMemory::new();
        for &(first, pages) in mappings {
            for page in first..first + pages {
                memory.write(AT + page * PAGE, &[7; 16]);
            }
        }
        for &(first, pages) in chunks {
            memory.write_word(AT + first * PAGE, 0);
            memory.write_word(AT + first * PAGE + 8, (pages * PAGE) | IS_MMAPPED);
        }
        let at = |(first, pages): &(u64, u64)| mapping(AT + first * PAGE, pages * PAGE, Backing::Anonymous);
        let mappings: Vec<Mapping> = mappings.iter().map(at).collect();
        let place = |(first, pages): &(u64, u64)| (AT + first * PAGE, AT + (first + pages) * PAGE);
        let heaps: Vec<(u64, u64)> = heaps.iter().map(place).collect();
        let bytes = chunks.iter().map(|(_, pages)| pages * PAGE).sum();
        let wanted = (chunks.len() as u64, bytes);
        let found = find(&memory, &layout, &mappings, &heaps, wanted, |_, _| {}).unwrap();
        (found.chunks, found.bytes / PAGE)
    }

    #[test]
    fn a_chunk_may_lie_in_several_mappings_that_touch() {
        // Split after its first page, in its middle, and joined with another chunk.
        assert_eq!(found(&[(0, 20)], &[(0, 1), (1, 19)], &[]), (1, 20));
        assert_eq!(found(&[(0, 20)], &[(0, 8), (8, 4), (12, 8)], &[]), (1, 20));
        let joined = [(0, 8), (8, 14), (22, 18)];
        assert_eq!(found(&[(0, 20), (20, 20)], &joined, &[]), (2, 40));
        // It begins in a mapping that begins with somebody else's pages.
        assert_eq!(found(&[(3, 20)], &[(0, 8), (8, 15)], &[]), (1, 20));
    }

    #[test]
    fn a_chunk_does_not_lie_across_a_gap_or_a_heap() {
        assert_eq!(found(&[(0, 20)], &[(0, 8), (9, 11)], &[]), (0, 0));
        assert_eq!(found(&[(0, 20)], &[(0, 8), (8, 12)], &[(10, 2)]), (0, 0));
        assert_eq!(found(&[(12, 8)], &[(0, 8), (8, 12)], &[(0, 12)]), (1, 8));
    }
}
