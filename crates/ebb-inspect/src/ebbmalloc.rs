//! ebbmalloc: every slab slot by slot and every extent, by what its descriptors say.
//!
//! [`read`] is the entry. The process says itself where its heap lies and how it is laid out
//! ([`ebb_stats::layout`]), so no version is guessed. `caches` gathers the slots in threads' caches, which are free for a
//! trim; `slab` tells page by page what lies there; [`profile`] is the heap profile. A trim returns whole free pages; free bytes next to live ones
//! are not.
//!
//! A returned page that is present was put there again by the kernel (huge pages), or is being read while it
//! changes: it counts as returned, and resident.

mod caches;
pub mod explain;
pub mod guards;
pub mod profile;
mod slab;
#[cfg(test)]
mod tests;

use ebb_allocators::Allocator;
use ebb_stats::guards::state;
use ebb_stats::layout::{DIRTY, Offsets, Place, kind};

use crate::breakdown::{Breakdown, Line};
use crate::exact::usize_of;
use crate::heap::{Classes, Heap, Unsupported};
use crate::memory::{Presence, Reader, Unreadable, unless_torn};
use crate::space::Space;
use crate::target::Target;

use caches::Cached;
use slab::{Class, Slab};

const NAME: &str = Allocator::Ebbmalloc.name();
/// Granules of a region at most: all the address space that a program can have.
const MOST_GRANULES: u64 = 1 << 32;
/// Explicit arenas at most, more than an allocator has.
const MOST_ARENAS: u64 = 1 << 13;
/// Bytes of address space whose pages are asked about at once, where more than one unit may lie in them.
const LOOK_AHEAD: u64 = 64 << 20;
/// The same within one unit: what is asked of the kernel follows what is resident, what is kept of it is 256 KiB and that.
const PIECE_BYTES: u64 = 1 << 40;

/// What the ebbmalloc of `target` holds whose layout is `place`.
pub fn read(target: &Target, place: &Place) -> Result<Heap, Unsupported> {
    let mappings = target.mappings()?;
    let space = Space { memory: target.memory(), mappings: &mappings };
    of_place(space, place)
}

fn of_place(space: Space<'_>, place: &Place) -> Result<Heap, Unsupported> {
    let offsets = &place.offsets;
    if !is_sane(offsets) {
        return Err(Unsupported::Layout(NAME.to_owned()));
    }
    let classes = slab::classes(space, place)?;
    let arenas = arenas(space, place)?;
    let mut sum = Sum {
        place,
        cached: caches::read(space, place, &classes)?,
        classes,
        breakdown: Breakdown::default(),
        sizes: Classes::default(),
        torn: 0,
    };
    for &views in &arenas {
        for view in 0..offsets.views {
            sum.region(space, views.wrapping_add(view * 32))?;
        }
    }
    sum.guards(space)?;
    sum.breakdown.close();
    let torn_bytes = sum.torn * offsets.granule_bytes;
    Ok(Heap {
        error: torn_bytes as f64 / sum.breakdown.live.resident.max(torn_bytes).max(1) as f64,
        arenas: Some(arenas.len() as u64),
        classes: sum.sizes.0,
        torn: sum.torn,
        missing: torn_bytes,
        ..Heap::of(NAME, sum.breakdown)
    })
}

/// Whether the numbers can be those of any allocator: what follows divides and loops by them.
fn is_sane(offsets: &Offsets) -> bool {
    offsets.granule_bytes.is_power_of_two()
        && (4096..=4 << 20).contains(&offsets.granule_bytes)
        && (1..=256).contains(&offsets.classes)
        && offsets.rationed < offsets.classes
        && (12..=256).contains(&offsets.class_bytes)
        && (64..=1024).contains(&offsets.descriptor_bytes)
        && offsets.views <= 4096
        && [offsets.bits, offsets.resident, offsets.leaving, offsets.base]
            .iter()
            .all(|&at| at <= offsets.descriptor_bytes - 8)
        && [offsets.kind, offsets.fill, offsets.class].iter().all(|&at| at < offsets.descriptor_bytes)
        && offsets.len <= offsets.descriptor_bytes - 4
}

/// Addresses of the views of every arena: the heap's own, and the arenas that the program made.
fn arenas(space: Space<'_>, place: &Place) -> Result<Vec<u64>, Unreadable> {
    let offsets = &place.offsets;
    let mut reader = space.reader();
    let mut word = |at: u64| Ok(unless_torn(reader.word(at))?.unwrap_or(0));
    let mut views = vec![place.heap.wrapping_add(offsets.heap_views)];
    let table = word(place.heap.wrapping_add(offsets.heap_explicit_table))?;
    let count = word(place.heap.wrapping_add(offsets.heap_explicit_count))?;
    for index in 0..count.min(MOST_ARENAS) {
        match word(table.wrapping_add(index * 8))? {
            0 => {}
            arena => views.push(arena.wrapping_add(offsets.explicit_views)),
        }
    }
    Ok(views)
}

struct Sum<'a> {
    place: &'a Place,
    classes: Vec<Class>,
    cached: Cached,
    breakdown: Breakdown,
    sizes: Classes,
    /// Granules whose descriptors make no sense: they changed while they were read.
    torn: u64,
}

/// A region, and what is known of its pages from where the walk is on.
struct Region<'a> {
    space: Space<'a>,
    reader: Reader<'a>,
    base: u64,
    end: u64,
    presence: Presence,
}

impl Region<'_> {
    /// Which pages of `from..to` are present.
    fn presence(&mut self, from: u64, to: u64) -> Result<&Presence, Unreadable> {
        if from < self.presence.start() || to > self.presence.end() {
            let end = to.max(from.saturating_add(LOOK_AHEAD)).min(self.end.max(to));
            self.presence = self.space.presence(from, end)?;
        }
        Ok(&self.presence)
    }
}

impl Sum<'_> {
    /// Counts the live blocks of sampled guards, each with its page.
    fn guards(&mut self, space: Space<'_>) -> Result<(), Unreadable> {
        let pool = guards::read(&mut space.reader(), self.place)?;
        let page_bytes = pool.page_bytes;
        for record in pool.records.iter().filter(|record| record.state == state::LIVE && pool.contains(record.block)) {
            let used = record.bytes.min(page_bytes);
            let page = record.block / page_bytes * page_bytes;
            let is_present = space.presence(page, page + page_bytes)?.is_present(page);
            let resident = |bytes: u64| if is_present { bytes } else { 0 };
            self.breakdown.live += Line::one(used, resident(used));
            self.breakdown.free += Line::one(page_bytes - used, resident(page_bytes - used));
            self.sizes.block(used, used);
        }
        Ok(())
    }

    fn region(&mut self, space: Space<'_>, view: u64) -> Result<(), Unsupported> {
        let offsets = self.place.offsets;
        let mut reader = space.reader();
        let mut bytes = [0; 32];
        if unless_torn(reader.bytes(view, &mut bytes))?.is_none() {
            return Ok(());
        }
        let words = bytes.as_chunks().0;
        let [base, top, _, descriptors] = [0, 1, 2, 3].map(|at| u64::from_ne_bytes(words[at]));
        if top == 0 {
            return Ok(());
        }
        let sizes = (
            top.checked_mul(offsets.granule_bytes).and_then(|bytes| base.checked_add(bytes)),
            descriptors.checked_add(top.saturating_mul(offsets.descriptor_bytes)),
        );
        let (Some(end), Some(_), true) = (sizes.0, sizes.1, top <= MOST_GRANULES) else {
            return Err(Unsupported::Contradicts(format!("{NAME}: a region at {base:#x} of {top} granules")));
        };
        let mut region = Region { space, reader, base, end, presence: Presence::read(space.memory, base, base)? };
        let mut index = 0;
        while index < top {
            let at = descriptors + index * offsets.descriptor_bytes;
            index += self.unit(&mut region, index, top, at)?.max(1);
        }
        Ok(())
    }

    /// Counts what begins at granule `index`, whose descriptor is at `at`; how many granules that is.
    fn unit(&mut self, region: &mut Region<'_>, index: u64, top: u64, at: u64) -> Result<u64, Unreadable> {
        let offsets = self.place.offsets;
        let start = region.base + index * offsets.granule_bytes;
        let mut bytes = [0; 1024];
        let bytes = &mut bytes[..usize_of(offsets.descriptor_bytes)];
        // A descriptor whose page is absent is inside a returned range.
        let found = unless_torn(region.reader.bytes(at, bytes))?.is_some();
        let byte = |at: u64| bytes[usize_of(at)];
        let word = |at: u64| number(bytes, at, 8);
        let kind = byte(offsets.kind);
        if !found || kind == kind::UNUSED {
            // An absent page has as much to say of all descriptors on it.
            let page_bytes = region.space.memory.page_bytes();
            let on_page = (page_bytes - at % page_bytes) / offsets.descriptor_bytes;
            let granules = if found { 1 } else { on_page.clamp(1, top - index) };
            self.free(region, start, granules, false)?;
            return Ok(granules);
        }
        let class = self.classes.get(usize::from(byte(offsets.class))).copied();
        let granules = match (kind, class) {
            (kind::SLAB, class) => class.map_or(0, |class| class.granules),
            _ => number(bytes, offsets.len, 4),
        };
        let is_whole = granules > 0 && granules <= top - index;
        match (kind, class) {
            (kind::SLAB, Some(class)) if is_whole => {
                let page_bytes = region.space.memory.page_bytes();
                let end = start + granules * offsets.granule_bytes;
                let lead = word(offsets.base).saturating_sub(start).min(page_bytes);
                let slab = Slab {
                    start,
                    lead,
                    class: class.with_lead(lead, end - start),
                    resident: word(offsets.resident),
                    leaving: word(offsets.leaving),
                };
                let Some(bitmap) = slab.bitmap(&mut region.reader, word(offsets.bits))? else {
                    self.torn += granules;
                    return Ok(granules);
                };
                let cached = self.cached.within(start, end);
                let presence = region.presence(start, end)?;
                let live = slab.count(bitmap, cached, end, page_bytes, presence, &mut self.breakdown);
                self.sizes.count(class.size, live);
            }
            (kind::LARGE, _) if is_whole => {
                let end = start + granules * offsets.granule_bytes;
                let used = word(offsets.bits).min(end - start);
                // Piece by piece, for a block may be longer than what it has pages for.
                let (mut at, mut present) = (start, 0);
                while at < start + used {
                    let to = (start + used).min(at.saturating_add(PIECE_BYTES));
                    present += region.presence(at, to)?.bytes(at, to);
                    at = to;
                }
                self.breakdown.live += Line::one(used, present);
                let tail = region.presence(at, end)?;
                keep(&mut self.breakdown, at, end, true, tail);
                self.sizes.block(used, used);
            }
            (kind::FREE, _) if is_whole => {
                self.free(region, start, granules, byte(offsets.fill) == DIRTY)?;
            }
            (kind::LEAVING, _) if is_whole => self.free(region, start, granules, true)?,
            _ => {
                self.torn += 1;
                return Ok(1);
            }
        }
        Ok(granules)
    }

    /// Counts free granules; `dirty` says that they are not back with the kernel.
    fn free(&mut self, region: &mut Region<'_>, start: u64, granules: u64, dirty: bool) -> Result<(), Unreadable> {
        let end = start + granules * self.place.offsets.granule_bytes;
        // Piece by piece, for one may be as large as all address space that is left.
        let mut at = start;
        while at < end {
            let to = end.min(at.saturating_add(PIECE_BYTES));
            keep(&mut self.breakdown, at, to, dirty, region.presence(at, to)?);
            at = to;
        }
        Ok(())
    }
}

/// The number of `len` bytes, at most 8, at `at`; [`is_sane`] has seen that it is within.
fn number(bytes: &[u8], at: u64, len: usize) -> u64 {
    let mut word = [0; 8];
    let from = usize_of(at);
    // The machine's own order is this one: ebbmalloc runs on x86-64 and AArch64.
    word[..len].copy_from_slice(&bytes[from..from + len]);
    u64::from_le_bytes(word)
}

/// Counts free whole pages: resident ones are kept if they are `dirty`, else they are not the allocator's to
/// return.
fn keep(breakdown: &mut Breakdown, from: u64, to: u64, dirty: bool, presence: &Presence) {
    if from >= to {
        return;
    }
    let present = presence.bytes(from, to);
    let absent = to - from - present;
    if dirty && present > 0 {
        breakdown.kept += Line::one(present, present);
        breakdown.returned += Line::one(absent, 0);
    } else {
        breakdown.returned += Line::one(to - from, present);
    }
}
