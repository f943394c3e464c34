//! mimalloc 2 and 3 on x86-64: every page, with the number of its blocks that are in use.
//!
//! [`read`] is the entry. `segments` finds those of 2: they lie at multiples of their size, and each repeats a cookie
//! in mimalloc's data. `map` finds the page map of 3. Nothing has a name. `options` reads the settings in force from
//! the table that has their names. Lists within the blocks name the free blocks of a page; they are not followed,
//! except the lists of blocks that other threads freed: counts are exact, and of a page that is resident in part the
//! resident bytes count as live first.

mod map;
mod options;
mod segments;
#[cfg(test)]
mod tests;

use std::path::Path;

use ebb_allocators::Allocator;

use crate::breakdown::{Breakdown, Line};
use crate::heap::{Classes, Heap, Unsupported};
use crate::image::Image;
use crate::memory::{Presence, Unreadable};
use crate::space::Space;
use crate::target::Target;

use map::{Map, Page, State};
use segments::Segments;

const NAME: &str = Allocator::Mimalloc.name();
/// A segment of the second version; a structure that was torn may tell of so many bytes.
const TORN_BYTES: u64 = 32 << 20;

/// What the mimalloc in the mapped file `file` of `target` holds.
pub fn read(target: &Target, file: &Path) -> Result<Heap, Unsupported> {
    let mappings = target.mappings()?;
    let space = Space { memory: target.memory(), mappings: &mappings };
    let image = Image::of(target, &mappings, file).ok_or(Unsupported::NotThere(NAME))?;
    of_data(space, image.data(), layouts_of(file))
}

fn layouts_of(file: &Path) -> &'static [segments::Layout] {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("python") || name.starts_with("libpython") { &segments::CPYTHONS } else { &segments::LAYOUTS }
}

fn of_data(space: Space<'_>, data: &[(u64, u64)], layouts: &'static [segments::Layout]) -> Result<Heap, Unsupported> {
    let settings = options::read(space, data)?;
    let mut sum = Sum::default();
    let version = if let Some(segments) = Segments::find(space, data, layouts)? {
        for &segment in &segments.places {
            sum.segment(space, &segments, segment)?;
        }
        format!("2, laid out as {}", segments.layout.versions)
    } else if let Some(map) = Map::read(space, data)? {
        for page in &map.pages {
            sum.page(page, &space.presence(page.start, page.end)?);
        }
        sum.torn = map.torn;
        "3".to_owned()
    } else {
        // Before the first request it has none, and no other way to know it is there than its options.
        let is_used = !settings.is_empty() && segments::has_candidates(space)? && !Map::is_unused(space, data)?;
        return Err(if is_used { Unsupported::Layout(NAME.to_owned()) } else { Unsupported::NotThere(NAME) });
    };
    sum.breakdown.close();
    Ok(Heap {
        error: sum.guessed as f64 / sum.breakdown.live.resident.max(1) as f64,
        classes: sum.classes.0,
        settings,
        torn: sum.torn,
        missing: sum.torn.saturating_mul(TORN_BYTES),
        ..Heap::of(format!("{NAME} {version}"), sum.breakdown)
    })
}

#[derive(Default)]
struct Sum {
    breakdown: Breakdown,
    classes: Classes,
    torn: u64,
    /// Resident bytes of pages that are resident in part and have free blocks: which are live is not known.
    guessed: u64,
}

impl Sum {
    fn segment(&mut self, space: Space<'_>, segments: &Segments, start: u64) -> Result<(), Unreadable> {
        let Some(segment) = segments.read(space, start)? else {
            self.torn += 1;
            return Ok(());
        };
        let presence = space.presence(start, segment.end)?;
        for page in &segment.pages {
            self.page(page, &presence);
        }
        self.torn += segment.torn;
        Ok(())
    }

    fn page(&mut self, page: &Page, presence: &Presence) {
        let (start, end) = (page.start, page.end);
        let resident = presence.bytes(start, end);
        match page.state {
            State::Own => self.breakdown.overhead += Line::one(end - start, resident),
            State::Free => self.keep(end - start, resident),
            State::Blocks { first, bytes, capacity, live } => {
                let blocks_end = (first + bytes * capacity).min(end);
                let of_blocks = presence.bytes(first, blocks_end);
                self.breakdown.overhead += Line::one(first - start, presence.bytes(start, first));
                let behind = presence.bytes(blocks_end, end);
                let rest = Line::one(end - blocks_end, behind);
                // Room for blocks that were never made.
                self.breakdown.returned += rest;
                let in_use = bytes * live;
                let free = (blocks_end - first).saturating_sub(in_use);
                let in_use = blocks_end - first - free;
                if live == 0 {
                    self.keep(free, of_blocks);
                    return;
                }
                let live_resident = in_use.min(of_blocks);
                if of_blocks < blocks_end - first && free > 0 {
                    self.guessed += live_resident.min(of_blocks - live_resident);
                }
                self.breakdown.live += Line { chunks: live, bytes: in_use, resident: live_resident };
                self.classes.count(bytes, live);
                self.breakdown.free +=
                    Line { chunks: capacity.saturating_sub(live), bytes: free, resident: of_blocks - live_resident };
            }
        }
    }

    /// Free memory: what is resident of it is kept, the rest has been returned or was never used.
    fn keep(&mut self, bytes: u64, resident: u64) {
        self.breakdown.kept += Line::one(resident, resident);
        self.breakdown.returned += Line::one(bytes - resident, 0);
    }
}
