//! A slab: what lies on each of its pages, by its bitmap of free slots.

use ebb_stats::layout::Place;

use crate::breakdown::{Breakdown, Line};
use crate::exact::usize_of;
use crate::heap::Unsupported;
use crate::memory::{Presence, Reader, Unreadable, unless_torn};
use crate::space::Space;

/// Pages of a slab at most: its masks are words.
const MOST_PAGES: u64 = 64;
/// Slots of a slab at most, more than any class has.
const MOST_SLOTS: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Class {
    pub(super) size: u64,
    pub(super) slots: u64,
    pub(super) granules: u64,
}

impl Class {
    /// With as many slots as a slab of `bytes` has room for after `lead`.
    pub(super) fn with_lead(self, lead: u64, bytes: u64) -> Self {
        let room = bytes.saturating_sub(lead) / self.size;
        Self { slots: self.slots.min(room), ..self }
    }
}

pub(super) fn classes(space: Space<'_>, place: &Place) -> Result<Vec<Class>, Unsupported> {
    let offsets = &place.offsets;
    let mut reader = space.reader();
    let mut classes = vec![Class::default()];
    for number in 1..offsets.classes {
        let at = place.classes.wrapping_add(number * offsets.class_bytes);
        let mut int = |offset: u64| reader.int(at.wrapping_add(offset)).map(u64::from);
        let class = Class {
            size: int(offsets.class_size)?,
            slots: int(offsets.class_slots)?,
            granules: int(offsets.class_granules)?,
        };
        let bytes = class.granules * offsets.granule_bytes;
        let fits = class.size > 0
            && class.size * class.slots <= bytes
            && class.slots <= MOST_SLOTS
            && bytes <= MOST_PAGES * space.memory.page_bytes();
        if !fits {
            return Err(Unsupported::Layout(format!("ebbmalloc: class {number} of {class:?}")));
        }
        classes.push(class);
    }
    Ok(classes)
}

/// A slab as its descriptor tells of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slab {
    pub(super) start: u64,
    /// Bytes before its first slot, less than a page.
    pub(super) lead: u64,
    pub(super) class: Class,
    /// Masks of pages.
    pub(super) resident: u64,
    pub(super) leaving: u64,
}

impl Slab {
    /// Its bitmap of free slots, which `bits` is or leads to. `None` where it is gone.
    pub(super) fn bitmap(&self, reader: &mut Reader<'_>, bits: u64) -> Result<Option<Vec<u64>>, Unreadable> {
        if self.class.slots <= 64 {
            return Ok(Some(vec![bits]));
        }
        let mut bytes = vec![0; usize_of(self.class.slots.div_ceil(64)) * 8];
        let read = unless_torn(reader.bytes(bits, &mut bytes))?;
        let words = bytes.as_chunks().0.iter();
        Ok(read.map(|()| words.map(|word| u64::from_ne_bytes(*word)).collect()))
    }

    /// Adds its pages, up to `end`, to the breakdown; how many slots are live. `cached` are the slots within it that lie in
    /// caches, by address and size.
    pub(super) fn count(
        &self,
        mut free: Vec<u64>,
        cached: &[(u64, u64)],
        end: u64,
        page_bytes: u64,
        presence: &Presence,
        breakdown: &mut Breakdown,
    ) -> u64 {
        let Class { size, slots, .. } = self.class;
        let mut in_caches = vec![0; free.len()];
        for &(address, bytes) in cached {
            // A block of a larger class may lie on several slots.
            let first = (address - self.start).saturating_sub(self.lead) / size;
            set(&mut in_caches, first, (first + (bytes / size).max(1)).min(slots));
        }
        for page in (0..MOST_PAGES).filter(|page| self.leaving >> page & 1 != 0) {
            let (first, end) = self.slots_between(page * page_bytes, (page + 1) * page_bytes);
            set(&mut free, first, end);
        }
        for (in_caches, free) in in_caches.iter_mut().zip(&free) {
            *in_caches &= !free;
        }
        let live: Vec<u64> = free.iter().zip(&in_caches).map(|(a, b)| !(a | b)).collect();
        let mut at = self.start;
        while at < end {
            let (from, to) = (at - self.start, at - self.start + page_bytes);
            let is_present = presence.is_present(at);
            let resident = |bytes: u64| if is_present { bytes } else { 0 };
            let line = |bytes: u64| Line::one(bytes, resident(bytes));
            let of_live = self.bytes(&live, from, to);
            if of_live > 0 {
                let of_caches = self.bytes(&in_caches, from, to);
                let rest = page_bytes - of_live - of_caches;
                breakdown.live.bytes += of_live;
                breakdown.live.resident += resident(of_live);
                breakdown.cached += line(of_caches);
                breakdown.free += line(rest);
            } else if is_present && (self.resident | self.leaving) >> (from / page_bytes) & 1 != 0 {
                breakdown.kept += line(page_bytes);
            } else {
                breakdown.returned += line(page_bytes);
            }
            at += page_bytes;
        }
        let live = ones(&live, 0, slots);
        breakdown.live.chunks += live;
        live
    }

    /// The slots that touch bytes `from..to` of the slab: the first, and the one after the last.
    fn slots_between(&self, from: u64, to: u64) -> (u64, u64) {
        let Class { size, slots, .. } = self.class;
        let (from, to) = self.after_lead(from, to);
        ((from / size).min(slots), to.div_ceil(size).min(slots))
    }

    /// Bytes `from..to` of the slab, counted from its first slot.
    fn after_lead(&self, from: u64, to: u64) -> (u64, u64) {
        (from.saturating_sub(self.lead), to.saturating_sub(self.lead))
    }

    /// How many bytes of the slots in `map` lie in bytes `from..to` of the slab.
    fn bytes(&self, map: &[u64], from: u64, to: u64) -> u64 {
        let size = self.class.size;
        let (first, end) = self.slots_between(from, to);
        if first >= end {
            return 0;
        }
        let (from, to) = self.after_lead(from, to);
        let mut bytes = ones(map, first, end) * size;
        if is_set(map, first) {
            bytes -= from - first * size;
        }
        if is_set(map, end - 1) {
            bytes -= (end * size).saturating_sub(to);
        }
        bytes
    }
}

pub(super) fn is_set(map: &[u64], slot: u64) -> bool {
    map[(slot / 64) as usize] >> (slot % 64) & 1 != 0
}

/// Sets the bits `first..end`.
fn set(map: &mut [u64], first: u64, end: u64) {
    for slot in first..end {
        map[(slot / 64) as usize] |= 1 << (slot % 64);
    }
}

/// How many of the bits `first..end` are set.
fn ones(map: &[u64], first: u64, end: u64) -> u64 {
    let mut count = 0;
    let mut at = first;
    while at < end {
        let bits = (64 - at % 64).min(end - at);
        let mask = u64::MAX >> (64 - bits) << (at % 64);
        count += u64::from((map[(at / 64) as usize] & mask).count_ones());
        at += bits;
    }
    count
}
