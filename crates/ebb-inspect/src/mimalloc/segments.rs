//! Segments: aligned stretches of memory that begin with a table of their pages.

use std::collections::{BTreeMap, BTreeSet};

use crate::exact::usize_of;
use crate::memory::{Reader, Unreadable, unless_torn, words};
use crate::space::Space;

use super::map::{Page, State, freed_blocks};

/// A segment's size, and what its address is a multiple of.
pub const SEGMENT_BYTES: u64 = 32 << 20;
/// What a segment is divided into.
const SLICE_BYTES: u64 = 64 << 10;
const MAX_SLICES: u64 = SEGMENT_BYTES / SLICE_BYTES;
/// Stands for a size that has no room in 32 bits.
const HUGE_BLOCK: u64 = 2 << 30;
/// No process has more of them; more is noise.
const MAX_SEGMENTS: usize = 1 << 20;
/// Segments that decide about a layout.
const SAMPLES: usize = 64;
/// A segment of one block may be as large as this.
const MAX_HUGE_SLICES: u64 = 1 << 30;

/// Where the fields of a segment and of a page's entry lie. Taken by `offsetof` from the sources of 2.0.9, 2.1.2,
/// 2.1.7, 2.1.9, 2.2.7, 2.3.2 and 2.4.1, as they are built for release; then with the two words that
/// secure builds have more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The versions that have it.
    pub versions: &'static str,
    pub(super) used: u64,
    pub(super) cookie: u64,
    pub(super) slices: u64,
    pub(super) own_slices: u64,
    pub(super) entries: u64,
    pub(super) table: u64,
    pub(super) page: PageLayout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageLayout {
    pub(super) bytes: u64,
    pub(super) used: u64,
    used_is_word: bool,
    pub(super) block_bytes: u64,
    block_bytes_is_long: bool,
    pub(super) freed_by_others: u64,
}

const PAGE_2_0: PageLayout = PageLayout {
    bytes: 80,
    used: 24,
    used_is_word: true,
    block_bytes: 28,
    block_bytes_is_long: false,
    freed_by_others: 40,
};
const PAGE_2_1: PageLayout = PageLayout {
    bytes: 96,
    used: 32,
    used_is_word: false,
    block_bytes: 40,
    block_bytes_is_long: true,
    freed_by_others: 56,
};
const SEGMENT_2_0: Layout = Layout {
    versions: "2.0.9 to 2.1.2",
    used: 208,
    cookie: 216,
    slices: 224,
    own_slices: 232,
    entries: 248,
    table: 264,
    page: PAGE_2_0,
};
const SEGMENT_2_1: Layout = Layout { versions: "2.1.4 to 2.1.7", page: PAGE_2_1, ..SEGMENT_2_0 };
const SEGMENT_2_2: Layout = Layout {
    versions: "2.1.9 to 2.4.1",
    used: 216,
    cookie: 224,
    slices: 248,
    own_slices: 256,
    entries: 272,
    table: 288,
    page: PAGE_2_1,
};

/// A secure build's page has two keys more, in front of what other threads freed.
const fn secure(layout: Layout) -> Layout {
    Layout {
        page: PageLayout {
            bytes: layout.page.bytes + 16,
            freed_by_others: layout.page.freed_by_others + 16,
            ..layout.page
        },
        ..layout
    }
}

/// What a build without a global lock has more lies after what is read.
const FREE_THREADED: [Layout; 2] = [
    Layout {
        versions: "2.1.2 of CPython without a global lock",
        page: PageLayout { bytes: 96, ..PAGE_2_0 },
        ..SEGMENT_2_0
    },
    Layout {
        versions: "2.1.9 to 2.4.1, of CPython without a global lock",
        page: PageLayout { bytes: 112, ..PAGE_2_1 },
        ..SEGMENT_2_2
    },
];
/// CPython's own copy, since 3.13: its objects' in a free-threaded build, elsewhere with `PYTHONMALLOC=mimalloc`. By `offsetof`
/// from the sources of 3.13.5 and the headers of 3.14.10, which was not run without a global lock. A secure build of
/// mimalloc itself has pages as large, and another place in them for what other threads freed.
pub const CPYTHONS: [Layout; 4] = [
    FREE_THREADED[0],
    FREE_THREADED[1],
    Layout { versions: "2.1.9 to 2.4.1, of CPython", ..SEGMENT_2_2 },
    Layout { versions: "2.1.2 of CPython", ..SEGMENT_2_0 },
];

/// All that are known of mimalloc itself.
pub const LAYOUTS: [Layout; 6] =
    [SEGMENT_2_2, SEGMENT_2_1, SEGMENT_2_0, secure(SEGMENT_2_2), secure(SEGMENT_2_1), secure(SEGMENT_2_0)];

/// A segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub end: u64,
    pub pages: Vec<Page>,
    /// Entries that were torn.
    pub torn: u64,
}

/// The segments of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    pub layout: &'static Layout,
    pub places: Vec<u64>,
}

impl Segments {
    /// Looks for segments whose cookie belongs to a word of `data`. Of `layouts` it is the one by which the fewest
    /// of their entries are torn: some differ in the entries alone.
    pub fn find(space: Space<'_>, data: &[(u64, u64)], layouts: &'static [Layout]) -> Result<Option<Self>, Unreadable> {
        let places = aligned(space);
        let mut reader = space.reader();
        let mut best: Option<(Self, u64)> = None;
        for layout in layouts {
            let mut by_key: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for &place in &places {
                if let Some(key) = unless_torn(key(&mut reader, space, layout, place))?.flatten() {
                    by_key.entry(key).or_default().push(place);
                }
            }
            let known = known_keys(space, data, by_key.keys().copied().collect())?;
            by_key.retain(|key, _| known.contains(key));
            let most = by_key.into_values().max_by_key(Vec::len);
            let Some(places) = most else { continue };
            let found = Self { layout, places };
            let mut torn = 0;
            for &place in found.places.iter().take(SAMPLES) {
                torn += found.read(space, place)?.map_or(1, |segment| segment.torn);
            }
            let is_better = best.as_ref().is_none_or(|(other, least)| {
                torn < *least || (torn == *least && found.places.len() > other.places.len())
            });
            if is_better {
                best = Some((found, torn));
            }
        }
        // With half of them torn it is no layout of these.
        let is_sound = |found: &Self, torn| usize_of(torn) * 2 <= found.places.len().min(SAMPLES);
        Ok(best.and_then(|(found, torn)| is_sound(&found, torn).then_some(found)))
    }

    /// Reads the segment at `start`; `None` for one that is being changed.
    pub fn read(&self, space: Space<'_>, start: u64) -> Result<Option<Segment>, Unreadable> {
        let mut reader = space.reader();
        let head = unless_torn(Head::read(&mut reader, space, self.layout, start))?.flatten();
        let Some(head) = head else {
            return Ok(None);
        };
        let end = start + head.slices * SLICE_BYTES;
        let mut segment = Segment { end, ..Segment::default() };
        if head.used == 0 {
            // Freed as a whole; its table is of before.
            let (start, state) = (start, State::Free);
            segment.pages.push(Page { start, end, state });
            return Ok(Some(segment));
        }
        let mut index = 0;
        while index < head.slices {
            let at = start + self.layout.table + index * self.layout.page.bytes;
            let rest = head.slices - index;
            let begin = start + index * SLICE_BYTES;
            let entry = if index < head.entries {
                unless_torn(self.entry(&mut reader, at, begin, rest))?.flatten()
            } else {
                None
            };
            let (slices, state) = match entry {
                Some((slices, _)) if index < head.own_slices => (slices, State::Own),
                Some(entry) => entry,
                None => {
                    // What follows cannot be told apart.
                    segment.torn += 1;
                    break;
                }
            };
            let end = begin + slices * SLICE_BYTES;
            segment.pages.push(Page { start: begin, end, state });
            index += slices;
        }
        Ok(Some(segment))
    }

    /// The slices and the state of the page whose entry is at `at`.
    fn entry(
        &self,
        reader: &mut Reader<'_>,
        at: u64,
        begin: u64,
        most: u64,
    ) -> Result<Option<(u64, State)>, Unreadable> {
        let fields = &self.layout.page;
        let mut entry = vec![0; usize_of(fields.bytes)];
        reader.bytes(at, &mut entry)?;
        let long = |at: u64| field::<8>(&entry, at).map(u64::from_ne_bytes);
        let word = |at: u64| field::<4>(&entry, at).map(|it| u64::from(u32::from_ne_bytes(it)));
        let short = |at: u64| field::<2>(&entry, at).map(|it| u64::from(u16::from_ne_bytes(it)));
        let figures = || {
            let slices = word(0)?;
            let used = if fields.used_is_word { word(fields.used) } else { short(fields.used) }?;
            let bytes = if fields.block_bytes_is_long { long(fields.block_bytes) } else { word(fields.block_bytes) }?;
            Some((slices, short(10)?, used, bytes, long(fields.freed_by_others)?))
        };
        let Some((slices, capacity, used, bytes, freed)) = figures() else {
            return Ok(None);
        };
        if slices == 0 || slices > most {
            return Ok(None);
        }
        if bytes == 0 {
            // A page that is given up is cleared.
            return Ok((capacity == 0).then_some((slices, State::Free)));
        }
        let room = slices * SLICE_BYTES;
        let bytes = match bytes {
            HUGE_BLOCK => room,
            bytes => bytes,
        };
        if capacity.checked_mul(bytes).is_none_or(|all| all > room) || used > capacity {
            return Ok(None);
        }
        let freed = freed_by_others(reader, freed, (begin, begin + room), used)?;
        let live = used - freed.min(used);
        Ok(Some((slices, State::Blocks { first: begin, bytes, capacity, live })))
    }
}

/// What the two low bits of a page's word about blocks that other threads freed say: such a block is being put on the
/// list of the owner's heap.
const IS_PUT_ON_HEAPS_LIST: u64 = 1;
/// It is on that list, and further ones go on the page's own.
const IS_ON_HEAPS_LIST: u64 = 2;

/// How many of a page's `used` blocks other threads freed, by its `word` about them. They count as used until their
/// owner takes them back.
fn freed_by_others(reader: &mut Reader<'_>, word: u64, range: (u64, u64), used: u64) -> Result<u64, Unreadable> {
    let of_page = freed_blocks(reader, word & !3, range, used)?;
    // The heap's list has one block of a page at most: the owner takes it off before another one can follow.
    let of_heap = u64::from(matches!(word & 3, IS_PUT_ON_HEAPS_LIST | IS_ON_HEAPS_LIST));
    Ok((of_page + of_heap).min(used))
}

fn field<const N: usize>(entry: &[u8], at: u64) -> Option<[u8; N]> {
    entry.get(usize_of(at)..)?.first_chunk().copied()
}

/// A segment's own figures.
struct Head {
    slices: u64,
    own_slices: u64,
    entries: u64,
    used: u64,
}

impl Head {
    fn read(
        reader: &mut Reader<'_>,
        space: Space<'_>,
        layout: &Layout,
        start: u64,
    ) -> Result<Option<Self>, Unreadable> {
        let head = Self {
            slices: reader.word(start + layout.slices)?,
            own_slices: reader.word(start + layout.own_slices)?,
            entries: reader.word(start + layout.entries)?,
            used: reader.word(start + layout.used)?,
        };
        let is_segment = (1..MAX_HUGE_SLICES).contains(&head.slices)
            && (1..=16).contains(&head.own_slices)
            && head.own_slices <= head.slices
            && (1..=MAX_SLICES).contains(&head.entries)
            && head.entries <= head.slices
            && head.used <= MAX_SLICES
            // The first entry is that of the table itself.
            && u64::from(reader.int(start + layout.table)?) == head.own_slices
            && space.is_mapped(start, start.saturating_add(head.slices * SLICE_BYTES));
        Ok(is_segment.then_some(head))
    }
}

/// What the cookie of the segment at `place` was made with, if one is there.
fn key(reader: &mut Reader<'_>, space: Space<'_>, layout: &Layout, place: u64) -> Result<Option<u64>, Unreadable> {
    let head = Head::read(reader, space, layout, place)?;
    let cookie = reader.word(place + layout.cookie)?;
    Ok(head.map(|_| cookie ^ place))
}

fn known_keys(space: Space<'_>, data: &[(u64, u64)], keys: BTreeSet<u64>) -> Result<BTreeSet<u64>, Unreadable> {
    let mut known = BTreeSet::new();
    if keys.is_empty() {
        return Ok(known);
    }
    for &range in data {
        words(space.memory, range, |_, word| {
            if keys.contains(&word) {
                known.insert(word);
            }
        })?;
    }
    Ok(known)
}

/// Whether anything is at an address at which a segment can begin.
pub fn has_candidates(space: Space<'_>) -> Result<bool, Unreadable> {
    let mut reader = space.reader();
    for place in aligned(space) {
        if unless_torn(reader.word(place))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The addresses in the process's own memory at which a segment can begin.
fn aligned(space: Space<'_>) -> Vec<u64> {
    let own = space.mappings.iter().filter(|mapping| space.own(mapping.start).is_some() && mapping.writable);
    own.flat_map(|mapping| {
        let first = mapping.start.next_multiple_of(SEGMENT_BYTES);
        (first..mapping.end).step_by(usize_of(SEGMENT_BYTES))
    })
    .take(MAX_SEGMENTS)
    .collect()
}
