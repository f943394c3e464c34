//! The heaps of an arena, where chunks lie that are to be walked, and its bins.
//!
//! The main arena's is the area that brk moves; a secondary arena has heaps of 64 MiB of address space,
//! aligned to that, linked from the newest to the oldest.

use std::collections::BTreeSet;

use crate::memory::{Reader, Unreadable, unless_torn};

use super::layout::{BINS, HEADER_BYTES, Layout};

/// More heaps than an arena can have: they are 64 MiB each.
const MAX_HEAPS: usize = 1 << 20;
/// As many chunks of bins are looked at to get back onto the chain.
const MAX_BINNED: usize = 1 << 16;
/// No process has memory from here on.
const END_OF_USER_SPACE: u64 = 1 << 56;

/// One heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// Its first address.
    pub start: u64,
    /// Its first chunk.
    pub first: u64,
    /// The first address after it.
    pub end: u64,
    /// The top chunk, in the arena's newest heap.
    pub top: Option<u64>,
    /// Whether it is the main arena's.
    pub is_main: bool,
}

/// The heaps of the secondary arena at `arena`, oldest first. Shorter than it is when the links are torn.
pub fn secondary(
    reader: &mut Reader<'_>,
    layout: &Layout,
    arena: u64,
    heap_bytes: u64,
) -> Result<Vec<Heap>, Unreadable> {
    let top = reader.word(arena + layout.arena.top)?;
    let mut heaps: Vec<Heap> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut start = top & !(heap_bytes - 1);
    while start != 0 && start < END_OF_USER_SPACE && heaps.len() < MAX_HEAPS {
        let owner = reader.word(start)?;
        let (previous, size) = (reader.word(start + 8)?, reader.word(start + 16)?);
        if owner != arena || size > heap_bytes || size < HEADER_BYTES {
            break;
        }
        let head = start + layout.heap_head_bytes;
        let first = if head == arena { first_chunk(arena + layout.arena.len) } else { head };
        if first + HEADER_BYTES > start + size {
            break;
        }
        heaps.push(Heap { start, first, end: start + size, top: heaps.is_empty().then_some(top), is_main: false });
        seen.insert(start);
        if previous % heap_bytes != 0 || seen.contains(&previous) {
            break;
        }
        start = previous;
    }
    heaps.reverse();
    Ok(heaps)
}

/// Chunks lie so that what they hold, a header after them, is a multiple of 16.
fn first_chunk(behind_arena: u64) -> u64 {
    behind_arena.next_multiple_of(HEADER_BYTES)
}

/// The main arena's heaps: what brk gave, from `begin` on within `area`, and what was mapped when brk
/// failed. `mapping_of` tells the mapping of an address.
pub fn main(
    reader: &mut Reader<'_>,
    layout: &Layout,
    arena: u64,
    begin: u64,
    area: (u64, u64),
    mapping_of: impl Fn(u64) -> Option<(u64, u64)>,
) -> Result<Vec<Heap>, Unreadable> {
    let top = reader.word(arena + layout.arena.top)?;
    let in_area = |address| (area.0..area.1).contains(&address);
    let heap = |start: u64, end: u64, top| {
        let first = start.next_multiple_of(HEADER_BYTES);
        (end >= first + HEADER_BYTES).then_some(Heap { start, first, end, top, is_main: true })
    };
    if in_area(top) && in_area(begin) && begin <= top {
        let end = top.saturating_add(reader.word(top + 8)? & !7);
        let only = heap(begin, end, Some(top)).filter(|heap| heap.end <= area.1);
        return Ok(only.into_iter().collect());
    }
    // The arena continued in mappings. The kernel joins adjacent ones; anything else there
    // is left out by what the arena counts.
    let mut heaps = Vec::new();
    let mut rest = reader.word(arena + layout.arena.system_mem)?;
    if in_area(begin) {
        heaps.extend(heap(begin, area.1, None));
        rest = rest.saturating_sub(area.1 - begin);
    }
    if let Some((start, end)) = mapping_of(top) {
        heaps.extend(heap(start, end.min(start.saturating_add(rest)), Some(top)));
    }
    Ok(heaps)
}

/// Chunks in the bins of `arena`, and its top: they lead a walk back onto the chain where it broke. Lists of a busy or
/// damaged process may lead anywhere, also in circles: what is no chunk ends the list, and the number is bounded.
pub fn anchors(reader: &mut Reader<'_>, layout: &Layout, arena: u64) -> Result<Vec<u64>, Unreadable> {
    let mut addresses = vec![reader.word(arena + layout.arena.top)?];
    for index in 0..BINS as u64 {
        let own = arena + layout.arena.bins + index * 16 - HEADER_BYTES;
        let mut chunk = reader.word(own + HEADER_BYTES)?;
        while chunk != own && addresses.len() < MAX_BINNED {
            if chunk % HEADER_BYTES != 0 {
                break;
            }
            // The next one must name this one as its predecessor.
            let Some(next) = unless_torn(reader.word(chunk.wrapping_add(HEADER_BYTES)))? else {
                break;
            };
            addresses.push(chunk);
            if unless_torn(reader.word(next.wrapping_add(HEADER_BYTES + 8)))? != Some(chunk) {
                break;
            }
            chunk = next;
        }
    }
    addresses.retain(|address| address.is_multiple_of(HEADER_BYTES));
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// The size of the chunk at `chunk`.
pub fn chunk_size(reader: &mut Reader<'_>, chunk: u64) -> Result<u64, Unreadable> {
    if !chunk.is_multiple_of(HEADER_BYTES) {
        return Err(Unreadable::Unmapped(chunk));
    }
    Ok(reader.word(chunk.wrapping_add(8))? & !7)
}
