//! Chunks that are mappings of their own: large blocks.
//!
//! No list leads to them. malloc counts them, so a search through the anonymous mappings is complete when
//! it has found that number and that many bytes; else it is a part and said to be one.
//!
//! The kernel joins mappings of the same kind that touch: a chunk may lie behind any number of pages that are
//! somebody else's, such as pymalloc's arenas, a runtime's heap or stacks. So every present page is looked at on which no chunk has
//! been seen to lie, the smallest mappings first, until all are found or [`MOST_TRIES`] and [`MOST_PAGES`] are used up.

use crate::memory::{Memory, Presence, Unreadable, unless_torn};
use crate::target::{Backing, Mapping};

use super::layout::{HEADER_BYTES, Layout};
use crate::line::Line;

const IS_MMAPPED: u64 = 2;
const FLAGS: u64 = 7;
/// What chunks of huge pages are multiples of, on x86-64.
const LEAST_HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Present pages without a chunk that are looked at in a process: 512 MiB of others' memory. 1 GiB took 0.32 s of CPU on
/// an EPYC.
const MOST_TRIES: u64 = 1 << 17;
/// Pages whose presence is asked for on the way, present or not: 32 GiB of address space. 64 GiB took 0.17 s of CPU.
const MOST_PAGES: u64 = 1 << 23;
/// Presence is asked for piece by piece: where chunks are found little of it is needed.
const WINDOW_PAGES: u64 = 8192;
/// Copied at once, where chunks are rare.
const MOST_PIECE_PAGES: u64 = 64;

/// Finds the chunks that are mappings in `mappings`, up to `wanted` (chunks and bytes). Ranges in `heaps`
/// are left out. `each` gets every chunk's first address and its end.
pub fn find(
    memory: &impl Memory,
    layout: &Layout,
    mappings: &[Mapping],
    heaps: &[(u64, u64)],
    wanted: (u64, u64),
    each: impl FnMut(u64, u64),
) -> Result<Line, Unreadable> {
    let mut own: Vec<&Mapping> = mappings
        .iter()
        .filter(|mapping| mapping.is_own_data() && mapping.backing == Backing::Anonymous)
        .collect();
    own.sort_by_key(|mapping| mapping.end - mapping.start);
    let mut search = Search {
        memory,
        layout,
        wanted,
        each,
        found: Line::default(),
        tries: MOST_TRIES,
        pages: MOST_PAGES,
    };
    for mapping in own {
        for (start, end) in without((mapping.start, mapping.end), heaps) {
            search.range(start, end)?;
        }
    }
    Ok(search.found)
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
struct Search<'a, M, F> {
    memory: &'a M,
    layout: &'a Layout,
    wanted: (u64, u64),
    each: F,
    found: Line,
    tries: u64,
    pages: u64,
}

impl<M: Memory, F: FnMut(u64, u64)> Search<'_, M, F> {
    fn is_over(&self) -> bool {
        self.tries == 0 || self.pages == 0 || is_all(self.layout, &self.found, self.wanted)
    }

    /// Searches `start..end`, which is mapped and no heap.
    fn range(&mut self, start: u64, end: u64) -> Result<(), Unreadable> {
        let page_bytes = self.memory.page_bytes();
        let mut at = start;
        // Nothing below is a part of a chunk that is yet to be found.
        let mut floor = start;
        while at < end && !self.is_over() {
            let pages = WINDOW_PAGES.min((end - at) / page_bytes).min(self.pages);
            self.pages -= pages;
            let window = Presence::read(self.memory, at, at + pages * page_bytes)?;
            let mut piece = 1;
            while at < window.end() && !self.is_over() {
                let present = present_pages(&window, at, piece, page_bytes);
                if present == 0 {
                    at += page_bytes;
                    continue;
                }
                match self.chunk_in((at, present), (floor, end))? {
                    Some(chunk) => {
                        (self.each)(chunk.header, chunk.end);
                        let presence = Presence::read(self.memory, chunk.start, chunk.end)?;
                        self.found.add(chunk.start, chunk.end, &presence);
                        at = chunk.end;
                        floor = chunk.end;
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

    /// The first chunk whose header lies on one of `pages` pages from `at` on, within `floor..end`.
    fn chunk_in(
        &self,
        (at, pages): (u64, u64),
        (floor, end): (u64, u64),
    ) -> Result<Option<Chunk>, Unreadable> {
        let page_bytes = self.memory.page_bytes();
        let mut bytes = vec![0; (pages * page_bytes) as usize];
        let copied = self.memory.copy(&[(at, bytes.len())], &mut bytes);
        if unless_torn(copied)?.is_none() {
            return Ok(None);
        }
        let each_page = bytes.chunks_exact(page_bytes as usize);
        let mut chunks = (at..)
            .step_by(page_bytes as usize)
            .zip(each_page)
            .filter_map(|(at, page)| chunk_on(self.layout, page, at, (floor, end)));
        Ok(chunks.find(|it| self.found.bytes + (it.end - it.start) <= self.wanted.1))
    }
}

/// How many pages from `at` on are present, up to `most`.
fn present_pages(presence: &Presence, at: u64, most: u64, page_bytes: u64) -> u64 {
    (0..most)
        .take_while(|page| presence.is_present(at + page * page_bytes))
        .count() as u64
}

/// Whether what was found is what malloc counted.
pub fn is_all(layout: &Layout, found: &Line, (chunks, bytes): (u64, u64)) -> bool {
    let is_sum = |found| {
        bytes
            .checked_sub(found)
            .is_some_and(|more| more <= layout.mmapped_drift_bytes())
    };
    found.chunks == chunks && is_sum(found.bytes)
}

/// The chunk whose header lies on the page `at`, if there is one within `floor..end`.
///
/// Where a block must be aligned the chunk begins later than its mapping and says how much: the block then lies at
/// the first multiple of a power of two, and the header in front of it.
fn chunk_on(layout: &Layout, page: &[u8], at: u64, (floor, end): (u64, u64)) -> Option<Chunk> {
    let page_bytes = page.len() as u64;
    let aligned = (0..)
        .map(|shift| HEADER_BYTES << shift)
        .take_while(|&block| block <= page_bytes);
    for place in aligned.map(|block| block - HEADER_BYTES) {
        let word = |at: u64| {
            let bytes = page.get(at as usize..at as usize + 8)?;
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
        let behind = match layout.mmapped_without_header {
            true => HEADER_BYTES,
            false => 0,
        };
        let len = lead.checked_add(size & !FLAGS)?.checked_add(behind)?;
        let start = header - lead;
        let unit = match is_huge {
            true => LEAST_HUGE_PAGE_BYTES,
            false => page_bytes,
        };
        if len > lead && len.is_multiple_of(unit) && len <= end - start {
            return Some(Chunk {
                start,
                header,
                end: start + len,
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glibc::version::Version;

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
}
