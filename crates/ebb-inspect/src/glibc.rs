//! The heap of the GNU C library (x86-64), read from outside.
//!
//! [`read`] is the entry. `version` says which glibc it is, `layout` where its fields lie,
//! `locate` finds malloc's static data, `space` and `heaps` the heaps of an arena and its bins. `arena` reads them: `walk`
//! goes through one chunk by chunk and `census` counts, `fast`, `tcache` and `mmapped` know what the chunks alone do not tell,
//! `trim` predicts what malloc_trim would return.
//!
//! A process that runs changes its heap while it is read. A heap whose chain breaks is read again; what
//! stays unread is a line of the breakdown, which adds up always. So is what there was no time for ([`Target::until`]).

mod arena;
mod census;
mod fast;
mod heaps;
mod huge;
mod layout;
mod locate;
mod mmapped;
mod sizes;
mod space;
mod tcache;
mod trim;
mod version;
mod walk;

#[cfg(test)]
mod tests;

pub use version::{Version, version_of};

use std::path::PathBuf;

use ebb_allocators::Allocator;

use crate::breakdown::{Breakdown, Line};
use crate::heap::{Glibc, Heap, Quality, Thresholds, Unsupported};
use crate::memory::{Presence, Unreadable, unless_torn};
use crate::target::{Mapping, Target};

use census::Census;
use locate::{Parameters, Static};
use space::Space;
use trim::Trimmer;

/// Where a process's glibc heap is, without its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file that malloc is in, as the process knows it: libc, or a static program.
    pub file: PathBuf,
    /// The lock of each arena, the main one first: an int, 0 while it is free.
    pub locks: Vec<u64>,
}

/// Where the heap of `target` is.
pub fn place(target: &Target) -> Result<Place, Unsupported> {
    let mappings = target.mappings()?;
    let (libc, space) = Space::of(target, &mappings)?;
    let found = space.locate(&libc)?;
    Ok(Place {
        // The lock is an arena's first field in every version.
        locks: found.arenas,
        file: libc.path,
    })
}

/// The largest chunk that M_MXFAST lets into a fastbin, its header included.
const MOST_FAST_BYTES: u64 = 176;

/// Reads the heap of `target`, which goes on running.
pub fn read(target: &Target) -> Result<Heap, Unsupported> {
    recognise(target).map_err(|error| match target.mappings() {
        // A process that ends is recognised as nothing.
        Err(Unreadable::Gone) => Unsupported::Unreadable(Unreadable::Gone),
        _ => error,
    })
}

fn recognise(target: &Target) -> Result<Heap, Unsupported> {
    let mappings = target.mappings()?;
    let (libc, space) = Space::of(target, &mappings)?;
    let found = space.locate(&libc)?;
    let (heap, arenas) = space.read(libc.version, &found)?;
    let huge_pages = if found.asks_for_huge_pages() { huge::of(&arenas, &target.huge_pages()?) } else { None };
    Ok(Heap { huge_pages, ..heap })
}

/// Whether the malloc of `target` asks the kernel for transparent huge pages.
pub fn asks_for_huge_pages(target: &Target) -> Result<bool, Unsupported> {
    let mappings = target.mappings()?;
    let (libc, space) = Space::of(target, &mappings)?;
    Ok(space.locate(&libc)?.asks_for_huge_pages())
}

impl Space<'_> {
    fn read(&self, version: Version, found: &Static) -> Result<(Heap, Vec<huge::Arena>), Unsupported> {
        let mut quality = Quality { fastbins_complete: true, counted: true, ..Quality::default() };
        let mut all = Census::new(0, Trimmer::default());
        // Sizes first: whatever takes its time later, these are known.
        let mut arenas = Vec::new();
        for &arena in &found.arenas {
            arenas.push((arena, self.heaps_of(arena, found)?));
        }
        let parameters = found.parameters;
        let ranges = arenas.iter().flat_map(|(_, heaps)| heaps);
        let ranges: Vec<(u64, u64)> = ranges.map(|(heap, _)| (heap.start, heap.end)).collect();
        self.add_mmapped(parameters.as_ref(), &ranges, &mut all)?;
        let (mut heaps, mut read) = (Vec::new(), Vec::new());
        for (arena, its) in arenas {
            let ranges = its.iter().map(|(heap, _)| (heap.start, heap.end)).collect();
            let before = all.breakdown.glibc_free().resident;
            let walked = self.read_arena(arena, its, found, &mut quality, &mut all, &mut heaps)?;
            let free = all.breakdown.glibc_free().resident.saturating_sub(before);
            read.push(huge::Arena { heaps: ranges, free });
            self.add_unlocated(arena, walked, &mut all)?;
        }
        let caches = match self.move_cached(&mut all, &heaps) {
            Err(Unreadable::Late) => {
                quality.counted = false;
                0
            }
            caches => caches?,
        };
        let thresholds = parameters.map(|parameters| Thresholds {
            trim_threshold: parameters.trim_threshold,
            mmap_threshold: parameters.mmap_threshold,
            dynamic: !parameters.is_fixed,
            arena_max: parameters.arena_max,
        });
        let heap = Heap {
            reader: format!("{} {version}", Allocator::Glibc),
            arenas: Some(found.arenas.len() as u64),
            missing: all.missing,
            classes: all.sizes.counts(),
            large: all.large,
            ..Heap::default()
        };
        let found = Glibc {
            mmapped: all.mmapped,
            mmapped_complete: all.mmapped_complete,
            trim: all.trim,
            thresholds,
            caches,
            quality,
        };
        Ok((divided(heap, all.breakdown, found), read))
    }

    /// What `arena` took from the kernel beyond the heaps that were found is unread.
    fn add_unlocated(&self, arena: u64, walked: u64, all: &mut Census) -> Result<(), Unreadable> {
        let system = self.reader().word(arena + self.layout.arena.system_mem);
        // A figure beyond all that is mapped is none.
        let mapped = self.mappings.iter().map(Mapping::len).sum::<u64>();
        let system = match system {
            Err(Unreadable::Late) => return Ok(()),
            system => unless_torn(system)?.unwrap_or(0),
        };
        let missing = if system <= mapped { system } else { 0 }.saturating_sub(walked);
        let line = Line { bytes: missing, ..Line::default() };
        all.breakdown.system += line;
        all.breakdown.unread += line;
        all.missing += missing;
        Ok(())
    }

    /// Moves what threads' caches hold from the line in use to its own.
    fn move_cached(&self, all: &mut Census, heaps: &[Presence]) -> Result<u64, Unreadable> {
        let candidates = std::mem::take(&mut all.candidates);
        let cached = tcache::cached(&mut self.reader(), &self.layout, &candidates)?;
        for (chunk, size) in cached.chunks {
            let heap = heaps.iter().find(|heap| (heap.start()..heap.end()).contains(&chunk));
            let Some(heap) = heap else { continue };
            let resident = heap.bytes(chunk, chunk.saturating_add(size));
            let Breakdown { live, cached, .. } = &mut all.breakdown;
            live.give(cached, size, resident);
            all.sizes.uncount(size);
        }
        Ok(cached.caches)
    }

    fn add_mmapped(
        &self,
        parameters: Option<&Parameters>,
        heaps: &[(u64, u64)],
        all: &mut Census,
    ) -> Result<(), Unreadable> {
        let Some(parameters) = parameters else {
            return Ok(());
        };
        let wanted = (parameters.mmapped_chunks, parameters.mmapped_bytes);
        let heap_bytes = Self::heap_bytes(Some(parameters));
        let ranges: Vec<(u64, u64)> =
            heaps.iter().map(|(start, end)| (*start, end.next_multiple_of(heap_bytes))).collect();
        let large = |from, to| all.large(from, to);
        let found = mmapped::find(self.memory, &self.layout, self.mappings, &ranges, wanted, large)?;
        all.mmapped = Line { chunks: wanted.0, bytes: wanted.1, resident: found.resident };
        all.mmapped_complete = mmapped::is_all(&self.layout, &found, wanted);
        if all.mmapped_complete {
            all.mmapped.bytes = found.bytes;
        } else {
            all.missing += wanted.1.saturating_sub(found.bytes);
        }
        Ok(())
    }
}

/// `heap` with its resident bytes divided by what can be done about them.
fn divided(heap: Heap, breakdown: Breakdown, found: Glibc) -> Heap {
    let lists = breakdown.glibc_free();
    let free = lists.resident;
    let tops = found.trim.secondary_tops.min(free);
    let trimmable = found.trim.returns.min(free - tops);
    let locked = found.trim.locked.min(free - tops - trimmable);
    let resident = breakdown.system.resident + found.mmapped.resident;
    let live = breakdown.live.resident + found.mmapped.resident;
    // A block that is free in an unknown fastbin looks as if it was in use.
    let unsure = if found.quality.fastbins_complete {
        0
    } else {
        let small = heap.classes.range(..=MOST_FAST_BYTES);
        small.map(|(_, class)| class.bytes).sum::<u64>().min(live)
    };
    let unread = breakdown.unread.resident + unsure;
    Heap {
        resident,
        live: live - unsure,
        trimmable,
        tops,
        pinned: free - tops - trimmable - locked,
        locked,
        cached: breakdown.cached.resident,
        metadata: breakdown.overhead.resident,
        unread,
        free_not_resident: lists.bytes.saturating_sub(free),
        free_blocks: heap.arenas.map(|arenas| breakdown.free.chunks + breakdown.fastbins.chunks + arenas),
        error: unread as f64 / resident.max(1) as f64,
        breakdown,
        glibc: Some(found),
        ..heap
    }
}
