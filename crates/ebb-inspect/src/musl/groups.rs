//! The groups of slots of musl's malloc, from the records that it keeps apart from them.
//!
//! A group is a mapping of its own, or lies in a slot of a larger one. Its record tells where it is, how
//! many slots of which class it has, and which of them are free.

use std::collections::{BTreeMap, BTreeSet};

use crate::exact::usize_of;
use crate::memory::{Reader, Unreadable, unless_torn};
use crate::space::Space;

/// Sizes and places are multiples of this.
pub const UNIT: u64 = 16;
/// Units of a slot by class.
pub const CLASSES: [u16; 48] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255, 292,
    340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
];
/// The class of a block that is a mapping of its own.
const OWN_MAPPING: u64 = 63;
/// An area of records is one page.
const AREA_BYTES: u64 = 4096;
const AREA_HEAD_BYTES: u64 = 24;
const RECORD_BYTES: u64 = 40;
/// Areas of records; a longer list is torn.
const MAX_AREAS: usize = 1 << 20;
/// Groups lie in each other's slots no deeper: each is at least twice the size of the one in it.
const MAX_DEPTH: usize = 16;

/// A group of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub start: u64,
    /// Of its mapping, or of its last slot.
    pub end: u64,
    pub stride: u64,
    pub slots: u64,
    /// A bit for each slot that is free.
    free: u64,
    class: u64,
    /// Whether it is a mapping of its own.
    is_mapped: bool,
}

impl Group {
    pub fn is_free(&self, slot: u64) -> bool {
        self.free >> slot & 1 != 0
    }

    /// Reads the record at `record`; `None` for one that is not used, an error where it is torn.
    fn read(reader: &mut Reader<'_>, space: Space<'_>, record: u64) -> Result<Result<Option<Self>, ()>, Unreadable> {
        let start = reader.word(record + 16)?;
        if start == 0 {
            return Ok(Ok(None));
        }
        let masks = reader.word(record + 24)?;
        let bits = reader.word(record + 32)?;
        let (last, class, pages) = (bits & 31, bits >> 6 & 63, bits >> 12);
        let slots = last + 1;
        let stride = match (last, pages) {
            (0, 1..) => (pages << 12).saturating_sub(UNIT),
            _ => match CLASSES.get(usize_of(class)) {
                Some(&units) => u64::from(units) * UNIT,
                None => return Ok(Err(())),
            },
        };
        let used = UNIT + stride.saturating_mul(slots);
        let bytes = match pages {
            0 => used,
            pages => pages << 12,
        };
        let is_sound = start % UNIT == 0
            && pages < 1 << 36
            && used <= bytes
            && (class != OWN_MAPPING || pages > 0)
            && space.is_writable(start, start.saturating_add(bytes));
        // The group leads back to its record.
        if !is_sound || unless_torn(reader.word(start))? != Some(record) {
            return Ok(Err(()));
        }
        Ok(Ok(Some(Self {
            start,
            end: start + bytes,
            stride,
            slots,
            free: (masks | masks >> 32) & ((1 << slots) - 1),
            class,
            is_mapped: pages > 0,
        })))
    }
}

/// All groups of a process.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// The groups that lie in no slot, by address.
    outer: Vec<Group>,
    /// The groups that lie in a slot, by address.
    inner: BTreeMap<u64, Group>,
    /// The areas of records.
    pub areas: Vec<(u64, u64)>,
    /// Records that were torn.
    pub torn: u64,
}

impl Groups {
    /// Reads all areas from `first` on.
    pub fn read(space: Space<'_>, first: u64) -> Result<Self, Unreadable> {
        let mut groups = Self::default();
        let mut reader = space.reader();
        let mut all = BTreeMap::new();
        let (mut area, mut seen) = (first, BTreeSet::new());
        while area != 0 && seen.len() < MAX_AREAS && seen.insert(area) {
            if !area.is_multiple_of(AREA_BYTES) || !space.is_writable(area, area + AREA_BYTES) {
                groups.torn += 1;
                break;
            }
            match unless_torn(groups.area(&mut reader, space, area, &mut all))? {
                Some(next) => area = next,
                None => {
                    groups.torn += 1;
                    break;
                }
            }
        }
        groups.nest(all);
        Ok(groups)
    }

    /// Reads the records of the area at `area`; answers the next area.
    fn area(
        &mut self,
        reader: &mut Reader<'_>,
        space: Space<'_>,
        area: u64,
        all: &mut BTreeMap<u64, Group>,
    ) -> Result<u64, Unreadable> {
        let next = reader.word(area + 8)?;
        let most = (AREA_BYTES - AREA_HEAD_BYTES) / RECORD_BYTES;
        let records = u64::from(reader.int(area + 16)?).min(most);
        self.areas.push((area, area + AREA_BYTES));
        for index in 0..records {
            let record = area + AREA_HEAD_BYTES + index * RECORD_BYTES;
            match unless_torn(Group::read(reader, space, record))? {
                Some(Ok(Some(group))) => {
                    all.insert(group.start, group);
                }
                Some(Ok(None)) => {}
                Some(Err(())) | None => self.torn += 1,
            }
        }
        Ok(next)
    }

    /// Separates groups in slots of others from the rest. A group that lies in another one's and is not
    /// exactly where a slot begins is torn.
    fn nest(&mut self, all: BTreeMap<u64, Group>) {
        let mut open: Vec<Group> = Vec::new();
        for group in all.into_values() {
            while open.last().is_some_and(|outer| outer.end <= group.start) {
                open.pop();
            }
            let Some(outer) = open.last() else {
                open.push(group);
                self.outer.push(group);
                continue;
            };
            let place = group.start - outer.start;
            let fits = place >= UNIT && {
                let slot = (place - UNIT) / outer.stride;
                let end_of_slot = outer.start + UNIT + (slot + 1) * outer.stride;
                !group.is_mapped && slot < outer.slots && !outer.is_free(slot) && group.end <= end_of_slot
            };
            if !fits || open.len() >= MAX_DEPTH {
                self.torn += 1;
                continue;
            }
            open.push(group);
            self.inner.insert(group.start, group);
        }
    }

    /// The groups that lie in no slot.
    pub fn outer(&self) -> &[Group] {
        &self.outer
    }

    /// The group that lies in the slot `from..to`; a block's header comes first.
    pub fn inside(&self, from: u64, to: u64) -> Option<&Group> {
        self.inner.range(from..to).next().map(|(_, group)| group)
    }

    /// Slots of `class`, as musl counts them: blocks that are mappings of their own have none, nor do the ends of
    /// data segments that the loader gave to malloc.
    pub fn slots(&self, class: u64) -> u64 {
        let mapped = self.outer.iter().filter(|group| group.is_mapped);
        mapped.chain(self.inner.values()).filter(|group| group.class == class).map(|group| group.slots).sum()
    }
}
