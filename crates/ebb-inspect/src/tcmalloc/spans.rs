//! The page map of tcmalloc, and the spans that it leads to, in the order of addresses.

use std::collections::BTreeMap;

use crate::breakdown::{Breakdown, Line};
use crate::exact::usize_of;
use crate::memory::{Reader, Unreadable, unless_torn, words};
use crate::page_map::{self, Run, Shape};
use crate::space::Space;

/// Addresses have so many bits.
const ADDRESS_BITS: u32 = 48;
/// Its pages are of 8 KiB, or as `configure` was set.
const PAGE_SHIFTS: [u32; 4] = [13, 12, 15, 16];

/// Where the page map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMap {
    root: u64,
    shift: u32,
}

/// A run of pages of tcmalloc's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// Number of its first page.
    first: u64,
    pages: u64,
    /// Objects of it that are with the program or in caches.
    out: u64,
    /// 0: one block.
    class: u64,
    state: u64,
}

const IN_USE: u64 = 0;
const FREE: u64 = 1;

impl Span {
    fn read(reader: &mut Reader<'_>, at: u64) -> Result<Option<Self>, Unreadable> {
        if at == 0 || !at.is_multiple_of(8) {
            return Ok(None);
        }
        let mut bytes = [0; 48];
        reader.bytes(at, &mut bytes)?;
        let words = bytes.as_chunks::<8>().0;
        let word = |index: usize| u64::from_ne_bytes(words[index]);
        let bits = word(5);
        let span = Self {
            first: word(0),
            pages: word(1),
            out: bits & 0xffff,
            class: bits >> 16 & 0xff,
            state: bits >> 24 & 3,
        };
        let most = 1 << (ADDRESS_BITS - 12);
        let is_span = (1..most).contains(&span.first) && (1..most).contains(&span.pages);
        Ok(is_span.then_some(span))
    }

    fn is_mapped(&self, space: Space<'_>, shift: u32) -> bool {
        let start = self.first << shift;
        space.is_mapped(start, start.saturating_add(self.pages << shift))
    }
}

impl PageMap {
    fn leaf_bits(shift: u32) -> u32 {
        (ADDRESS_BITS - shift).div_ceil(2)
    }

    /// Looks for the map's root among the words of `data`.
    pub fn find(space: Space<'_>, data: &[(u64, u64)]) -> Result<Option<Self>, Unreadable> {
        let candidates = page_map::candidates(space, data)?;
        for shift in PAGE_SHIFTS {
            let bits = Self::leaf_bits(shift);
            let shape =
                Shape { root_entries: 1 << (ADDRESS_BITS - shift - bits), leaf_entries: 1 << bits, alignment: 8 };
            let root = page_map::root(space, data, &candidates, shape, |reader, entry| {
                let span = Span::read(reader, entry)?;
                Ok(span
                    .filter(|span| span.is_mapped(space, shift))
                    .map(|span| Run { first: span.first, pages: span.pages }))
            })?;
            if let Some(root) = root {
                return Ok(Some(Self { root, shift }));
            }
        }
        Ok(None)
    }
}

/// Spans of one class of small objects, together.
#[derive(Clone, Debug, Default)]
pub struct Small {
    pub bytes: u64,
    pub resident: u64,
    /// Objects that are out of the spans.
    pub out: u64,
    /// How many spans of which length there are.
    pub lengths: BTreeMap<u64, u64>,
}

impl Small {
    /// How many objects of `bytes` the spans have room for.
    pub fn bytes_by_span(&self, bytes: u64) -> u64 {
        let spans = self.lengths.iter();
        spans.map(|(length, count)| length / bytes.max(1) * count).sum()
    }
}

/// What the spans come to.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// All but the spans of small objects.
    pub breakdown: Breakdown,
    pub small: BTreeMap<usize, Small>,
    /// Sizes of blocks that are spans of their own.
    pub large: Vec<u64>,
    /// Entries that lead to no span, or to one that overlaps another.
    pub torn: u64,
}

impl Spans {
    /// Goes through the page map.
    pub fn read(space: Space<'_>, map: &PageMap) -> Result<Self, Unreadable> {
        let bits = PageMap::leaf_bits(map.shift);
        let roots = 8u64 << (ADDRESS_BITS - map.shift - bits);
        let mut leaves = Vec::new();
        words(space.memory, (map.root, map.root + roots), |at, leaf| {
            leaves.push(((at - map.root) / 8, leaf));
        })?;
        let mut spans = Self::default();
        let mut next = 0;
        for (number, leaf) in leaves {
            let bytes = 8u64 << bits;
            if !space.is_mapped(leaf, leaf.saturating_add(bytes)) {
                spans.torn += 1;
                continue;
            }
            let presence = space.presence(leaf, leaf + bytes)?;
            spans.breakdown.overhead.add(leaf, leaf + bytes, &presence);
            spans.leaf(space, map, (number << bits, leaf), &mut next)?;
        }
        Ok(spans)
    }

    /// Goes through the leaf for the pages from `first` on; `next` is the first page that was not counted yet.
    fn leaf(
        &mut self,
        space: Space<'_>,
        map: &PageMap,
        (first, leaf): (u64, u64),
        next: &mut u64,
    ) -> Result<(), Unreadable> {
        let entries = 1u64 << PageMap::leaf_bits(map.shift);
        let mut found = Vec::new();
        words(space.memory, (leaf, leaf + entries * 8), |at, entry| {
            found.push((first + (at - leaf) / 8, entry));
        })?;
        let mut reader = space.reader();
        for (page, entry) in found {
            if page < *next {
                continue;
            }
            let span = unless_torn(Span::read(&mut reader, entry))?.flatten();
            let sound = span.filter(|span| span.first == page && span.is_mapped(space, map.shift));
            match sound {
                Some(span) => {
                    *next = span.first + span.pages;
                    self.span(space, map, &span)?;
                }
                None => self.torn += 1,
            }
        }
        Ok(())
    }

    fn span(&mut self, space: Space<'_>, map: &PageMap, span: &Span) -> Result<(), Unreadable> {
        let start = span.first << map.shift;
        let bytes = span.pages << map.shift;
        let resident = space.presence(start, start + bytes)?.bytes(start, start + bytes);
        let whole = Line::one(bytes, resident);
        match (span.state, span.class) {
            (IN_USE, 0) => {
                self.breakdown.live += whole;
                self.large.push(bytes);
            }
            (IN_USE, class) => {
                let small = self.small.entry(usize_of(class)).or_default();
                small.bytes += bytes;
                small.resident += resident;
                small.out += span.out;
                *small.lengths.entry(bytes).or_default() += 1;
            }
            (FREE, _) => self.breakdown.kept += whole,
            _ => self.breakdown.returned += whole,
        }
        Ok(())
    }
}
