//! The page map of mimalloc 3, which leads from each 64 KiB of address space to the page that they are part of.
//!
//! Its root is a table of tables that a word of the library's data leads to. A page tells how many of its blocks are in
//! use, and which slices of which arena it has, or which memory of the kernel's. What of an arena no page has
//! is free.

use std::collections::{BTreeMap, BTreeSet};

use crate::memory::{Reader, Unreadable, unless_torn, words};
use crate::space::Space;

const SLICE_BYTES: u64 = 64 << 10;
/// Entries of a part of the map; a part covers 512 MiB.
const PART_ENTRIES: u64 = 1 << 13;
/// For the addresses that user space has: 47 bits.
const ROOT_BYTES: u64 = 8 << 18;
/// Entries that decide whether a word leads to the map, and how many may lead to no page.
const SAMPLES: usize = 16;
const MAX_MISSES: usize = 4;
/// Words of the data that are looked at; pages of the process that are.
const MAX_CANDIDATES: usize = 1 << 16;
const MAX_PAGES: usize = 1 << 24;
/// An arena has no more slices.
const MAX_ARENA_SLICES: u64 = 1 << 24;

/// Fields of a page, taken by `offsetof` from 3.0.1, 3.1.5, 3.2.7, 3.3.2 and 3.4.3, which agree in these.
const PAGE_BYTES: usize = 136;
const USED: usize = 16;
const CAPACITY: usize = 18;
const FREED_BY_OTHERS: usize = 32;
const BLOCK_BYTES: usize = 40;
const FIRST_BLOCK: usize = 48;
/// Where its memory is from: an arena, first slice and slices, or the kernel's address and size; then which of both.
/// And whether the first block's place is a distance from the page's own fields in words, as from 3.4 on.
/// Secure builds have two keys more.
const ORIGINS: [(usize, bool); 4] = [(96, false), (88, true), (112, false), (104, true)];
const FROM_KERNEL: std::ops::RangeInclusive<u64> = 4..=6;
const FROM_ARENA: u64 = 7;
/// The number of slices of an arena, from 3.2 on and before; that of its own slices follows.
const ARENA_SLICES: [u64; 2] = [40, 32];

/// What a run of slices is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// mimalloc's own tables.
    Own,
    /// No page.
    Free,
    /// Blocks of one size from `first` on, `live` of `capacity` in use.
    Blocks { first: u64, bytes: u64, capacity: u64, live: u64 },
}

/// A run of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub start: u64,
    pub end: u64,
    pub state: State,
}

/// What the map leads to.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// Pages, and the rest of all arenas, by address.
    pub pages: Vec<Page>,
    /// Entries that lead to no page.
    pub torn: u64,
}

/// Where a map's parts are: their numbers and addresses.
type Parts = Vec<(u64, u64)>;

impl Map {
    /// Looks for the map from the words of `data` and reads all of it.
    pub fn read(space: Space<'_>, data: &[(u64, u64)]) -> Result<Option<Self>, Unreadable> {
        for root in roots(space, data)? {
            let parts = parts(space, root)?;
            if is_map(space, &parts)? {
                return Ok(Some(Self::of_parts(space, &parts)?));
            }
        }
        Ok(None)
    }

    /// Whether a word of `data` leads to a map as it is before the first request: with the part for the lowest
    /// addresses alone, which lies after the table.
    pub fn is_unused(space: Space<'_>, data: &[(u64, u64)]) -> Result<bool, Unreadable> {
        for root in roots(space, data)? {
            if parts(space, root)? == [(0, root + ROOT_BYTES)] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn of_parts(space: Space<'_>, parts: &Parts) -> Result<Self, Unreadable> {
        let mut map = Self::default();
        let mut arenas = BTreeSet::new();
        let mut reader = space.reader();
        let mut next = 0;
        for &(number, part) in parts {
            for (slice, entry) in entries(space, number, part)? {
                let address = slice * SLICE_BYTES;
                if address < next || map.pages.len() >= MAX_PAGES {
                    continue;
                }
                let found = unless_torn(page(&mut reader, space, entry, address))?.flatten();
                // The first slice of it that the map has is its first, or it is torn.
                match found.filter(|(page, _)| page.start == address) {
                    Some((page, arena)) => {
                        next = page.end;
                        map.pages.push(page);
                        arenas.extend(arena);
                    }
                    None => map.torn += 1,
                }
            }
        }
        map.add_free(&mut reader, space, &arenas)?;
        Ok(map)
    }

    /// Adds what of `arenas` no page has.
    fn add_free(
        &mut self,
        reader: &mut Reader<'_>,
        space: Space<'_>,
        arenas: &BTreeSet<u64>,
    ) -> Result<(), Unreadable> {
        let pages: BTreeMap<u64, u64> = self.pages.iter().map(|it| (it.start, it.end)).collect();
        let mut behind = 0;
        for &arena in arenas {
            let Some((own, end)) = extent(reader, space, arena)?.filter(|_| arena >= behind) else {
                self.torn += 1;
                continue;
            };
            behind = end;
            let mut at = arena;
            let mut add = |from: u64, to: u64, state| {
                if from < to {
                    self.pages.push(Page { start: from, end: to, state });
                }
            };
            for (&start, &end_of_page) in pages.range(arena..end) {
                let middle = own.clamp(at, start.max(at));
                add(at, middle, State::Own);
                add(middle, start, State::Free);
                at = end_of_page.max(at);
            }
            let middle = own.clamp(at, end.max(at));
            add(at, middle, State::Own);
            add(middle, end, State::Free);
        }
        Ok(())
    }
}

/// The places to which words of `data` lead that have room for a map's root.
fn roots(space: Space<'_>, data: &[(u64, u64)]) -> Result<BTreeSet<u64>, Unreadable> {
    let mut candidates = BTreeSet::new();
    for &range in data {
        words(space.memory, range, |_, word| {
            let fits = word % 4096 == 0 && space.is_mapped(word, word.saturating_add(ROOT_BYTES));
            if fits && candidates.len() < MAX_CANDIDATES {
                candidates.insert(word);
            }
        })?;
    }
    Ok(candidates)
}

/// The parts that the table at `root` leads to.
fn parts(space: Space<'_>, root: u64) -> Result<Parts, Unreadable> {
    let mut parts = Vec::new();
    words(space.memory, (root, root + ROOT_BYTES), |at, part| {
        if space.is_mapped(part, part.saturating_add(PART_ENTRIES * 8)) {
            parts.push(((at - root) / 8, part));
        }
    })?;
    Ok(parts)
}

/// The entries of a part: number of a slice, and where its page is.
fn entries(space: Space<'_>, number: u64, part: u64) -> Result<Parts, Unreadable> {
    let mut entries = Vec::new();
    words(space.memory, (part, part + PART_ENTRIES * 8), |at, entry| {
        let slice = number * PART_ENTRIES + (at - part) / 8;
        // The first one stands for null.
        if slice > 0 {
            entries.push((slice, entry));
        }
    })?;
    Ok(entries)
}

fn is_map(space: Space<'_>, parts: &Parts) -> Result<bool, Unreadable> {
    let mut reader = space.reader();
    let (mut hits, mut misses) = (0, 0);
    for &(number, part) in parts {
        for (slice, entry) in entries(space, number, part)? {
            match unless_torn(page(&mut reader, space, entry, slice * SLICE_BYTES))?.flatten() {
                Some(_) => hits += 1,
                None => misses += 1,
            }
            if hits >= SAMPLES || misses > MAX_MISSES {
                return Ok(misses <= MAX_MISSES);
            }
        }
    }
    Ok(hits > 0)
}

/// The page at `at`, which has the slice at `address`, and the arena that it is from.
fn page(
    reader: &mut Reader<'_>,
    space: Space<'_>,
    at: u64,
    address: u64,
) -> Result<Option<(Page, Option<u64>)>, Unreadable> {
    let mut bytes = [0; PAGE_BYTES];
    reader.bytes(at, &mut bytes)?;
    let long = |at: usize| {
        let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
        u64::from_ne_bytes(bytes.copied().unwrap_or_default())
    };
    let area = ORIGINS.iter().find_map(|&(origin, is_distance)| {
        let kind = long(origin + 16) & 0xffff_ffff;
        let (place, size) = (long(origin), long(origin + 8));
        let (start, bytes, arena) = match kind {
            FROM_ARENA => {
                let (index, slices) = (size & 0xffff_ffff, size >> 32);
                let start = place.checked_add(index * SLICE_BYTES)?;
                (start, slices * SLICE_BYTES, Some(place))
            }
            kind if FROM_KERNEL.contains(&kind) => (place, size, None),
            _ => return None,
        };
        let end = start.checked_add(bytes)?;
        let has = (start..end).contains(&address) && space.is_mapped(start, end);
        let first = if is_distance {
            at.checked_add((long(FIRST_BLOCK) & 0xffff_ffff) * 8)?
        } else {
            long(FIRST_BLOCK)
        };
        (has && (start..end).contains(&first)).then_some((start, end, first, arena))
    });
    let Some((start, end, first, arena)) = area else {
        return Ok(None);
    };
    // What is in front of the first slice of the map is alignment.
    let start = if arena.is_some() { start } else { address };
    let (used, capacity) = (long(USED) & 0xffff, long(CAPACITY) & 0xffff);
    let block = long(BLOCK_BYTES);
    let all = block.checked_mul(capacity).and_then(|all| first.checked_add(all));
    if first < start || block == 0 || used > capacity || all.is_none_or(|all| all > end) {
        return Ok(None);
    }
    let freed = freed_blocks(reader, long(FREED_BY_OTHERS) & !3, (first, end), used)?;
    let state = State::Blocks { first, bytes: block, capacity, live: used - freed.min(used) };
    Ok(Some((Page { start, end, state }, arena)))
}

/// The ends of the own slices and of all of the arena at `arena`.
fn extent(
    reader: &mut Reader<'_>,
    space: Space<'_>,
    arena: u64,
) -> Result<Option<(u64, u64)>, Unreadable> {
    for field in ARENA_SLICES {
        let slices = unless_torn(reader.word(arena.saturating_add(field)))?.unwrap_or(0);
        let own = unless_torn(reader.word(arena.saturating_add(field + 8)))?.unwrap_or(0);
        let end = arena.saturating_add(slices.saturating_mul(SLICE_BYTES));
        if (1..MAX_ARENA_SLICES).contains(&slices) && own <= slices && space.is_mapped(arena, end) {
            return Ok(Some((arena + own * SLICE_BYTES, end)));
        }
    }
    Ok(None)
}

/// The length of the page's own list of blocks that other threads freed, which begins at `block` and stays in `from..to`.
pub fn freed_blocks(
    reader: &mut Reader<'_>,
    mut block: u64,
    (from, to): (u64, u64),
    most: u64,
) -> Result<u64, Unreadable> {
    let mut count = 0;
    while (from..to).contains(&block) && count < most {
        count += 1;
        block = unless_torn(reader.word(block))?.unwrap_or(0);
    }
    Ok(count)
}
