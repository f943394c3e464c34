//! Which block of the heap an address is in, and what lies before and after it.

use ebb_stats::guards::{Record, state};
use ebb_stats::layout::{Place, kind};

use super::guards::{self, Pool};
use super::slab::{self, Class, Slab};
use super::{NAME, arenas, caches, is_sane, number};
use crate::exact::usize_of;
use crate::heap::Unsupported;
use crate::memory::{Memory, Reader, Unreadable, unless_torn};
use crate::space::Space;
use crate::target::Mapping;

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In use.
    Live,
    /// Freed; in a thread's cache.
    Cached,
    /// Free.
    Free,
}

/// A block, or free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first byte.
    pub start: u64,
    /// Bytes that can be used.
    pub bytes: u64,
    /// See [`State`].
    pub state: State,
}

/// Where an address is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// In a block of a slab; its neighbours in the slab.
    Slot(Block, [Option<Block>; 2]),
    /// In a large block, in the unused memory after it, or in free memory of the heap.
    Large(Block),
    /// In the page of a sampled guard, or in the page next to it.
    Guarded(Box<Record>),
    /// In a slab, in no slot.
    BetweenSlots,
}

/// The heap of a process or a core.
#[derive(Debug)]
pub struct Explainer<'a> {
    space: Space<'a>,
    place: Place,
    classes: Vec<Class>,
    cached: caches::Cached,
    pool: Pool,
    regions: Vec<(u64, u64, u64)>,
}

impl<'a> Explainer<'a> {
    /// Reads what all answers need.
    pub fn new(memory: &'a dyn Memory, mappings: &'a [Mapping], place: &Place) -> Result<Self, Unsupported> {
        if !is_sane(&place.offsets) {
            return Err(Unsupported::Layout(NAME.to_owned()));
        }
        let space = Space { memory, mappings };
        let classes = slab::classes(space, place)?;
        let mut reader = space.reader();
        let mut regions = Vec::new();
        for views in arenas(space, place)? {
            for view in 0..place.offsets.views {
                let mut bytes = [0; 32];
                if unless_torn(reader.bytes(views.wrapping_add(view * 32), &mut bytes))?.is_some() {
                    let [base, top, _, descriptors] = [0, 8, 16, 24].map(|at| number(&bytes, at, 8));
                    regions.push((base, top.saturating_mul(place.offsets.granule_bytes), descriptors));
                }
            }
        }
        let cached = caches::read(space, place, &classes)?;
        let pool = guards::read(&mut reader, place)?;
        Ok(Self { space, place: *place, classes, cached, pool, regions })
    }

    /// Where `address` is; `None` if it is not the heap's.
    pub fn find(&self, address: u64) -> Result<Option<Found>, Unreadable> {
        if self.pool.contains(address) {
            return Ok(self.pool.record(address).map(|record| Found::Guarded(Box::new(record.clone()))));
        }
        let region = self.regions.iter().find(|(base, len, _)| address.wrapping_sub(*base) < *len);
        let Some(&(base, len, descriptors)) = region else {
            return Ok(None);
        };
        let offsets = &self.place.offsets;
        let mut reader = self.space.reader();
        let granule = offsets.granule_bytes;
        let (goal, top) = ((address - base) / granule, len / granule);
        let mut index = 0;
        while index <= goal {
            let at = descriptors.wrapping_add(index.wrapping_mul(offsets.descriptor_bytes));
            let mut bytes = vec![0; usize_of(offsets.descriptor_bytes)];
            let is_there = unless_torn(reader.bytes(at, &mut bytes))?.is_some();
            let class = self.classes.get(usize::from(bytes[usize_of(offsets.class)]));
            let kind = if is_there { bytes[usize_of(offsets.kind)] } else { kind::UNUSED };
            let granules = match kind {
                kind::SLAB => class.map_or(1, |class| class.granules),
                kind::UNUSED => 1,
                _ => number(&bytes, offsets.len, 4),
            };
            let granules = granules.clamp(1, top - index);
            if goal < index + granules {
                let start = base + index * granule;
                return self
                    .of_unit(&mut reader, &bytes, kind, class, (start, start + granules * granule), address)
                    .map(Some);
            }
            index += granules;
        }
        Ok(None)
    }

    /// Where `address` is in the unit `start..end` that a descriptor tells of.
    fn of_unit(
        &self,
        reader: &mut Reader<'_>,
        descriptor: &[u8],
        kind: u8,
        class: Option<&Class>,
        (start, end): (u64, u64),
        address: u64,
    ) -> Result<Found, Unreadable> {
        let offsets = &self.place.offsets;
        let word = |at: u64| number(descriptor, at, 8);
        let large = |bytes: u64, state: State| Found::Large(Block { start, bytes, state });
        Ok(match (kind, class) {
            (kind::SLAB, Some(class)) => {
                let lead = word(offsets.base).saturating_sub(start).min(4096);
                let slab = Slab {
                    start,
                    lead,
                    class: class.with_lead(lead, end - start),
                    resident: 0,
                    leaving: word(offsets.leaving),
                };
                let Some(free) = slab.bitmap(reader, word(offsets.bits))? else {
                    return Err(Unreadable::Absent(word(offsets.bits)));
                };
                let slot = |number: Option<u64>| {
                    let number = number.filter(|number| *number < slab.class.slots)?;
                    let at = start + lead + number * slab.class.size;
                    let is_free = slab::is_set(&free, number)
                        || slab.leaving >> ((at - start) / self.space.memory.page_bytes()).min(63) & 1 != 0;
                    let is_cached = !self.cached.within(at, at + slab.class.size).is_empty();
                    let state = if is_free {
                        State::Free
                    } else if is_cached {
                        State::Cached
                    } else {
                        State::Live
                    };
                    Some(Block { start: at, bytes: slab.class.size, state })
                };
                let number = address.checked_sub(start + lead).map(|offset| offset / slab.class.size);
                match slot(number) {
                    Some(block) => {
                        let before = slot(number.and_then(|number| number.checked_sub(1)));
                        Found::Slot(block, [before, slot(number.map(|number| number + 1))])
                    }
                    None => Found::BetweenSlots,
                }
            }
            (kind::LARGE, _) => large(word(offsets.bits).min(end - start), State::Live),
            _ => large(end - start, State::Free),
        })
    }
}

/// What the first word of a record says.
pub fn state_of(record: &Record) -> &'static str {
    match record.state {
        state::LIVE => "live",
        state::FREED => "freed",
        _ => "changing",
    }
}
