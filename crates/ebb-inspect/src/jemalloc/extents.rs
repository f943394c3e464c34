//! The extents that jemalloc's page map tells of, in the order of addresses, each counted in its line.

use crate::breakdown::{Breakdown, Line};
use crate::heap::Classes;
use crate::memory::{Page, Presence, Reader, Unreadable, unless_torn, words};
use crate::space::Space;

use super::layout::{
    BITMAP_WORDS, LEAF_ENTRIES, LEAF_SPAN, Layout, MAX_REGIONS, PAGE_BYTES, ROOT_ENTRIES, SMALL_CLASSES, class_bytes,
};

/// Addresses have so many bits.
const ADDRESS_BITS: u32 = 48;

/// What an extent is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Cut into regions of a small class.
    Slab { region_bytes: u64, free: u64, bitmap: [u64; BITMAP_WORDS] },
    /// One block, of no more than its class's bytes: since 5.3.1 it is as long as the request, in whole pages.
    Large { block: u64, class_bytes: u64 },
    /// Free, not returned (dirty).
    Dirty,
    /// Free, returned lazily (muzzy).
    Muzzy,
    /// Free, returned, its addresses kept (retained).
    Retained,
    /// Being changed.
    Moving,
}

/// A run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
    pub state: State,
}

impl Extent {
    /// The extent that the page map's `entry` leads to; `None` for what cannot be one.
    pub fn read(reader: &mut Reader<'_>, layout: &Layout, entry: u64) -> Result<Option<Self>, Unreadable> {
        let fields = &layout.extent;
        let at = entry & ((1 << ADDRESS_BITS) - 1) & !(fields.alignment - 1);
        if at == 0 {
            return Ok(None);
        }
        let mut head = [0; 24];
        reader.bytes(at, &mut head)?;
        let [bits, block, size] = *head.as_chunks::<8>().0 else {
            return Ok(None);
        };
        let (bits, block) = (u64::from_ne_bytes(bits), u64::from_ne_bytes(block));
        let size = u64::from_ne_bytes(size) & !(PAGE_BYTES - 1);
        let start = block & !(PAGE_BYTES - 1);
        let Some(end) = start.checked_add(size).filter(|end| *end < 1 << ADDRESS_BITS) else {
            return Ok(None);
        };
        let part = |shift: u32, width: u32| bits >> shift & ((1 << width) - 1);
        let class = part(fields.class_shift, 8);
        let state = match part(fields.state_shift, fields.state_bits) {
            // The flag for slabs follows the arena's 12 bits.
            0 if part(12, 1) == 1 => {
                let mut bitmap = [0; BITMAP_WORDS * 8];
                reader.bytes(at + fields.bitmap, &mut bitmap)?;
                let mut words = [0; BITMAP_WORDS];
                for (word, bytes) in words.iter_mut().zip(bitmap.as_chunks().0) {
                    *word = u64::from_ne_bytes(*bytes);
                }
                slab(class, size, part(fields.free_shift, 10), words)
            }
            0 => large(class, size, block),
            1 => Some(State::Dirty),
            2 => Some(State::Muzzy),
            3 => Some(State::Retained),
            _ => Some(State::Moving),
        };
        let is_extent = size > 0 && start > 0;
        Ok(state.filter(|_| is_extent).map(|state| Self { start, end, state }))
    }
}

fn large(class: u64, size: u64, block: u64) -> Option<State> {
    let least = match class < SMALL_CLASSES {
        // A small block that is sampled has an extent of its own.
        true => class_bytes(class)?,
        false => class_bytes(class - 1)? + 1,
    };
    let class_bytes = class_bytes(class)?;
    (least <= size).then_some(State::Large { block, class_bytes })
}

fn slab(class: u64, size: u64, free: u64, mut bitmap: [u64; BITMAP_WORDS]) -> Option<State> {
    let region_bytes = class_bytes(class).filter(|_| class < SMALL_CLASSES)?;
    let regions = size / region_bytes;
    if regions == 0 || regions > MAX_REGIONS || free > regions {
        return None;
    }
    // Bits after the last region have no meaning.
    for (index, word) in (0u64..).zip(&mut bitmap) {
        let bits = regions.saturating_sub(index * 64).min(64);
        *word &= u64::MAX.checked_shr(64 - bits as u32).unwrap_or(0);
    }
    Some(State::Slab { region_bytes, free, bitmap })
}

/// What the extents come to.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    pub breakdown: Breakdown,
    pub classes: Classes,
    /// Bytes of extents in use, for the comparison with what the arenas count.
    pub active_bytes: u64,
    /// Entries of the page map that lead to no extent, or to one that overlaps another.
    pub torn: u64,
}

/// Goes through the page map at `root`; `cached` are the blocks in threads' caches, sorted.
pub fn walk(space: Space<'_>, layout: &Layout, root: u64, cached: &[u64]) -> Result<Sum, Unreadable> {
    let mut sum = Sum::default();
    let mut walk =
        Walk { space, layout, reader: space.reader(), cached, next: 0, is_padded: false, undecided: Vec::new() };
    let mut leaves = Vec::new();
    let end = root.saturating_add(ROOT_ENTRIES * 8);
    words(space.memory, (root, end), |at, leaf| {
        leaves.push(((at - root) / 8 * LEAF_SPAN, leaf));
    })?;
    for (start, leaf) in leaves {
        walk.leaf(start, leaf, &mut sum)?;
    }
    for extent in std::mem::take(&mut walk.undecided) {
        let presence = space.presence(extent.start, extent.end)?;
        walk.count_large(&extent, &presence, walk.is_padded, &mut sum);
    }
    Ok(sum)
}

struct Walk<'a> {
    space: Space<'a>,
    layout: &'a Layout,
    reader: Reader<'a>,
    cached: &'a [u64],
    /// The end of the last extent: what is below has been counted.
    next: u64,
    /// Large extents have a page more than their block, which begins anywhere in the first one
    /// (`opt.cache_oblivious`): seen by a block that does not begin where its extent does.
    is_padded: bool,
    /// Large extents that do not tell themselves whether their last page is padding.
    undecided: Vec<Extent>,
}

impl Walk<'_> {
    /// Goes through the leaf for the addresses from `start` on.
    fn leaf(&mut self, start: u64, leaf: u64, sum: &mut Sum) -> Result<(), Unreadable> {
        let end = start + LEAF_SPAN;
        let Some((first, last)) = self.space.window(start, end) else {
            return Ok(());
        };
        let window = self.space.presence(first, last)?;
        let mut pages = [Page::Absent; (LEAF_ENTRIES * 8 / PAGE_BYTES) as usize + 1];
        let begin = leaf & !(PAGE_BYTES - 1);
        if unless_torn(self.space.memory.pages(begin, &mut pages))?.is_none() {
            sum.torn += 1;
            return Ok(());
        }
        let mut number = (first - start) / PAGE_BYTES;
        while number < (last - start).div_ceil(PAGE_BYTES) {
            let skipped = self.next.saturating_sub(start) / PAGE_BYTES;
            if skipped > number {
                number = skipped;
                continue;
            }
            let at = leaf.saturating_add(number * 8);
            let page = at.saturating_sub(begin) / PAGE_BYTES;
            if pages.get(page as usize) != Some(&Page::Present) {
                // Nothing was ever written to this page of the leaf.
                number += (PAGE_BYTES - at % PAGE_BYTES).div_ceil(8);
                continue;
            }
            let entry = unless_torn(self.reader.word(at))?.unwrap_or(0);
            if entry != 0 {
                self.entry(start + number * PAGE_BYTES, entry, &window, sum)?;
            }
            number += 1;
        }
        Ok(())
    }

    fn entry(&mut self, address: u64, entry: u64, window: &Presence, sum: &mut Sum) -> Result<(), Unreadable> {
        let extent = unless_torn(Extent::read(&mut self.reader, self.layout, entry))?.flatten();
        // An extent begins where its first entry is; one that began before was counted or is torn.
        let sound = extent
            .filter(|extent| extent.start == address && extent.start >= self.next)
            .filter(|extent| self.space.is_mapped(extent.start, extent.end));
        let Some(extent) = sound else {
            sum.torn += 1;
            return Ok(());
        };
        self.next = extent.end;
        if extent.end <= window.end() {
            self.count(&extent, window, sum);
        } else {
            let own = self.space.presence(extent.start, extent.end)?;
            self.count(&extent, &own, sum);
        }
        Ok(())
    }

    fn count(&mut self, extent: &Extent, presence: &Presence, sum: &mut Sum) {
        let (start, end) = (extent.start, extent.end);
        let whole = Line::one(end - start, presence.bytes(start, end));
        let breakdown = &mut sum.breakdown;
        match extent.state {
            State::Dirty => breakdown.kept += whole,
            State::Muzzy => breakdown.lazy += whole,
            State::Retained => breakdown.returned += whole,
            State::Moving => {
                sum.torn += 1;
                breakdown.returned += whole;
            }
            State::Large { block, class_bytes } => {
                sum.active_bytes += whole.bytes;
                self.is_padded |= block > start;
                if block == start && whole.bytes <= class_bytes {
                    self.undecided.push(*extent);
                } else {
                    self.count_large(extent, presence, block > start, sum);
                }
            }
            State::Slab { region_bytes, free, bitmap } => {
                sum.active_bytes += whole.bytes;
                self.count_slab(extent, presence, region_bytes, free, &bitmap, sum);
            }
        }
    }

    /// Counts an extent in use that has one block, and maybe a page of padding.
    fn count_large(&self, extent: &Extent, presence: &Presence, is_padded: bool, sum: &mut Sum) {
        let State::Large { block, class_bytes } = extent.state else {
            return;
        };
        let (start, end) = (extent.start, extent.end);
        let pages = end - start - if is_padded { PAGE_BYTES } else { 0 };
        let end_of_block = block.saturating_add(pages.min(class_bytes)).min(end);
        let whole = Line::one(end - start, presence.bytes(start, end));
        let line = Line::one(end_of_block - block, presence.bytes(block, end_of_block));
        if self.cached.binary_search(&block).is_ok() {
            sum.breakdown.cached += line;
        } else {
            sum.breakdown.live += line;
            sum.classes.block(class_bytes, line.bytes);
        }
        sum.breakdown.overhead += Line::one(whole.bytes - line.bytes, whole.resident - line.resident);
    }

    fn count_slab(
        &self,
        extent: &Extent,
        presence: &Presence,
        region_bytes: u64,
        free: u64,
        bitmap: &[u64; BITMAP_WORDS],
        sum: &mut Sum,
    ) {
        let (start, end) = (extent.start, extent.end);
        let regions = (end - start) / region_bytes;
        let is_free = |region: u64| bitmap[(region / 64) as usize] >> (region % 64) & 1 != 0;
        let set: u64 = bitmap.iter().map(|word| u64::from(word.count_ones())).sum();
        // Count and bitmap change under one lock.
        sum.torn += u64::from(set != free);
        let from = self.cached.partition_point(|block| *block < start);
        let to = self.cached.partition_point(|block| *block < end);
        let cached = self.cached[from..to].iter().filter(|&&block| {
            let region = (block - start) / region_bytes;
            (block - start).is_multiple_of(region_bytes) && region < regions && !is_free(region)
        });
        let mut lines = (Line::default(), Line::default());
        for &block in cached {
            lines.0.add(block, block + region_bytes, presence);
        }
        // Runs of free regions, so that a page within one counts in one step.
        let mut region = 0;
        while region < regions {
            let first = region;
            while region < regions && is_free(region) {
                region += 1;
            }
            if region > first {
                lines.1.add(start + first * region_bytes, start + region * region_bytes, presence);
                lines.1.chunks += region - first - 1;
            }
            region += 1;
        }
        let tail = Line::one(end - start - regions * region_bytes, presence.bytes(start + regions * region_bytes, end));
        let whole = Line::one(end - start, presence.bytes(start, end));
        let live = regions - lines.0.chunks - lines.1.chunks;
        sum.classes.count(region_bytes, live);
        sum.breakdown.live += Line {
            chunks: live,
            bytes: whole.bytes - lines.0.bytes - lines.1.bytes - tail.bytes,
            resident: whole.resident - lines.0.resident - lines.1.resident - tail.resident,
        };
        sum.breakdown.cached += lines.0;
        sum.breakdown.free += lines.1;
        sum.breakdown.overhead += tail;
    }
}
