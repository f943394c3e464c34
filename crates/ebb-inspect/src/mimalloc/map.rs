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

/// The largest page's fields that are read.
const PAGE_BYTES: usize = 144;

/// Where the first block of a page is.
#[derive(Clone, Copy, Debug)]
enum First {
    Address,
    /// Words after the page's fields.
    Words,
    /// Bytes after the page's fields.
    Bytes,
}

/// Where the fields are.
#[derive(Debug)]
struct Layout {
    used: usize,
    capacity: usize,
    freed_by_others: usize,
    block_bytes: usize,
    first_block: (usize, First),
    /// Where the page's memory is from: an arena, first slice and slices, or the kernel's address and size; then
    /// which of both.
    origin: usize,
    /// What says that it is from an arena; the three numbers below say that it is the kernel's.
    from_arena: u64,
    /// In front of the map's table of parts.
    map_head: u64,
    /// In an arena: the address that it begins at, unless it begins with its fields.
    arena_start: Option<u64>,
    /// In an arena: the number of its slices, which that of its own slices follows.
    arena_slices: &'static [u64],
    /// An aligned area of so many bytes begins with so many of the fields of its pages.
    fields_of: Option<(u64, u64)>,
}

/// Those of 3.0 to 3.4, taken by `offsetof` from 3.0.1, 3.1.5, 3.2.7, 3.3.2 and 3.4.3.
const UNTIL_3_4: Layout = Layout {
    used: 16,
    capacity: 18,
    freed_by_others: 32,
    block_bytes: 40,
    first_block: (48, First::Address),
    origin: 96,
    from_arena: 7,
    map_head: 0,
    arena_start: None,
    // From 3.2 on, and before.
    arena_slices: &[40, 32],
    fields_of: None,
};
/// A secure build has two keys more.
const LAYOUTS: [Layout; 5] = [
    UNTIL_3_4,
    Layout { origin: 112, ..UNTIL_3_4 },
    // 3.4.
    Layout { first_block: (48, First::Words), origin: 88, ..UNTIL_3_4 },
    Layout { first_block: (48, First::Words), origin: 104, ..UNTIL_3_4 },
    // 3.6.0.
    Layout {
        used: 40,
        capacity: 56,
        freed_by_others: 64,
        block_bytes: 32,
        first_block: (48, First::Bytes),
        origin: 104,
        from_arena: 6,
        map_head: 80,
        arena_start: Some(40),
        arena_slices: &[48],
        fields_of: Some((256 << 20, 9 * SLICE_BYTES)),
    },
];

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
            for of_head in LAYOUTS.chunk_by(|a, b| a.map_head == b.map_head) {
                let parts = parts(space, root + of_head[0].map_head)?;
                for layout in of_head {
                    if is_map(space, &parts, layout)? {
                        return Ok(Some(Self::of_parts(space, &parts, layout)?));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Whether a word of `data` leads to a map as it is before the first request: with the part for the lowest
    /// addresses alone, which lies after the table.
    pub fn is_unused(space: Space<'_>, data: &[(u64, u64)]) -> Result<bool, Unreadable> {
        for root in roots(space, data)? {
            for head in [UNTIL_3_4.map_head, LAYOUTS[LAYOUTS.len() - 1].map_head] {
                let end = root + head + ROOT_BYTES;
                let is_after = |part| (end..end + SLICE_BYTES).contains(&part);
                if matches!(parts(space, root + head)?[..], [(0, part)] if is_after(part)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn of_parts(space: Space<'_>, parts: &Parts, layout: &Layout) -> Result<Self, Unreadable> {
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
                let found = unless_torn(layout.page(&mut reader, space, entry, address))?.flatten();
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
        map.add_free(&mut reader, space, &arenas, layout)?;
        Ok(map)
    }

    /// Adds what of `arenas` no page has.
    fn add_free(
        &mut self,
        reader: &mut Reader<'_>,
        space: Space<'_>,
        arenas: &BTreeSet<u64>,
        layout: &Layout,
    ) -> Result<(), Unreadable> {
        let pages: BTreeMap<u64, u64> = self.pages.iter().map(|it| (it.start, it.end)).collect();
        let mut behind = 0;
        for &arena in arenas {
            let extent = layout.extent(reader, space, arena)?;
            let Some((mut at, own, end)) = extent.filter(|&(start, ..)| start >= behind) else {
                self.torn += 1;
                continue;
            };
            behind = end;
            let mut add = |from: u64, to: u64| {
                let middle = own.clamp(from, to.max(from));
                self.add(from, middle, State::Own);
                self.add_unused(middle, to, layout);
            };
            for (&start, &end_of_page) in pages.range(at..end) {
                add(at, start);
                at = end_of_page.max(at);
            }
            add(at, end);
        }
        Ok(())
    }

    fn add(&mut self, start: u64, end: u64, state: State) {
        if start < end {
            self.pages.push(Page { start, end, state });
        }
    }

    /// Adds slices that no page has: free, or with the fields of pages.
    fn add_unused(&mut self, mut from: u64, to: u64, layout: &Layout) {
        while let (true, Some((area, fields))) = (from < to, layout.fields_of) {
            let start = from / area * area;
            let (own, end) = ((start + fields).min(to), (start + area).min(to));
            self.add(from, own, State::Own);
            self.add(from.max(own), end, State::Free);
            from = end;
        }
        self.add(from, to, State::Free);
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

fn is_map(space: Space<'_>, parts: &Parts, layout: &Layout) -> Result<bool, Unreadable> {
    let mut reader = space.reader();
    let (mut hits, mut misses) = (0, 0);
    for &(number, part) in parts {
        for (slice, entry) in entries(space, number, part)? {
            let address = slice * SLICE_BYTES;
            match unless_torn(layout.page(&mut reader, space, entry, address))?.flatten() {
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

impl Layout {
    /// The page at `at`, which has the slice at `address`, and the arena that it is from.
    fn page(
        &self,
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
        let (place, size) = (long(self.origin), long(self.origin + 8));
        let kind = long(self.origin + 16) & 0xffff_ffff;
        let (start, bytes, arena) = match kind {
            kind if kind == self.from_arena => {
                let (index, slices) = (size & 0xffff_ffff, size >> 32);
                let start = self.start(reader, place)?.saturating_add(index * SLICE_BYTES);
                (start, slices * SLICE_BYTES, Some(place))
            }
            kind if (self.from_arena - 3..self.from_arena).contains(&kind) => (place, size, None),
            _ => return Ok(None),
        };
        let end = start.saturating_add(bytes);
        let (first, of_first) = self.first_block;
        let first = match of_first {
            First::Address => long(first),
            First::Words => at.saturating_add((long(first) & 0xffff_ffff) * 8),
            First::Bytes => at.saturating_add(long(first)),
        };
        let has = |at| (start..end).contains(&at);
        if !has(address) || !has(first) || !space.is_mapped(start, end) {
            return Ok(None);
        }
        // What is in front of the first slice of the map is alignment.
        let start = if arena.is_some() { start } else { address };
        let (used, capacity) = (long(self.used) & 0xffff, long(self.capacity) & 0xffff);
        let block = long(self.block_bytes);
        let all = block.checked_mul(capacity).and_then(|all| first.checked_add(all));
        if first < start || block == 0 || used > capacity || all.is_none_or(|all| all > end) {
            return Ok(None);
        }
        let freed = freed_blocks(reader, long(self.freed_by_others) & !3, (first, end), used)?;
        let state = State::Blocks { first, bytes: block, capacity, live: used - freed.min(used) };
        Ok(Some((Page { start, end, state }, arena)))
    }

    fn start(&self, reader: &mut Reader<'_>, arena: u64) -> Result<u64, Unreadable> {
        self.arena_start.map_or(Ok(arena), |field| reader.word(arena.saturating_add(field)))
    }

    /// The start, and the ends of the own slices and of all of the arena with its fields at `arena`.
    fn extent(
        &self,
        reader: &mut Reader<'_>,
        space: Space<'_>,
        arena: u64,
    ) -> Result<Option<(u64, u64, u64)>, Unreadable> {
        let start = unless_torn(self.start(reader, arena))?.unwrap_or(0);
        for &field in self.arena_slices {
            let slices = unless_torn(reader.word(arena.saturating_add(field)))?.unwrap_or(0);
            let own = unless_torn(reader.word(arena.saturating_add(field + 8)))?.unwrap_or(0);
            let end = start.saturating_add(slices.saturating_mul(SLICE_BYTES));
            let fits = (1..MAX_ARENA_SLICES).contains(&slices) && own <= slices;
            if fits && space.is_mapped(start, end) {
                return Ok(Some((start, start + own * SLICE_BYTES, end)));
            }
        }
        Ok(None)
    }
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
