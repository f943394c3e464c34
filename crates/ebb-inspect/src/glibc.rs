//! The heap of the GNU C library (x86-64), read from outside.
//!
//! [`read`] is the entry. `version` says which glibc it is, `layout` where its fields lie,
//! `locate` finds malloc's static data, `heaps` the heaps of an arena and its bins, `walk` goes through one chunk
//! by chunk and `census` counts, `fast`, `tcache` and `mmapped` know what the chunks alone do not tell,
//! `trim` predicts what malloc_trim would return.
//!
//! A process that runs changes its heap while it is read. A heap whose chain breaks is read again; what
//! stays unread is a line of the breakdown, which adds up always. So is what there was no time for ([`Target::until`]).

mod census;
mod fast;
mod heaps;
mod layout;
mod locate;
mod mmapped;
mod sizes;
mod tcache;
mod trim;
mod version;
mod walk;

#[cfg(test)]
mod tests;

pub use version::Version;

use std::path::PathBuf;

use crate::breakdown::{Breakdown, Line};
use crate::heap::{Glibc, Heap, Quality, Thresholds, Unsupported};
use crate::memory::{Memory, Presence, Reader, Unreadable, unless_torn};
use crate::target::{Backing, Mapping, Target};

use census::{Census, Counting};
use fast::{Fast, Known};
use layout::{HEAP_BYTES, Layout};
use locate::{Parameters, Static};
use trim::Trimmer;
use version::Libc;
use walk::{Chunk, Stop, Visitor};

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

/// How often a heap is read whose chain breaks.
const ATTEMPTS: u32 = 3;
/// The largest chunk that M_MXFAST lets into a fastbin, its header included.
const MOST_FAST_BYTES: u64 = 176;
/// How often a walk is led back onto the chain.
const MAX_BREAKS: u64 = 256;

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
    space.read(libc.version, &found)
}

/// The memory of a process with the layout of its malloc.
struct Space<'a> {
    memory: &'a dyn Memory,
    layout: Layout,
    mappings: &'a [Mapping],
}

impl<'a> Space<'a> {
    fn of(target: &'a Target, mappings: &'a [Mapping]) -> Result<(Libc, Self), Unsupported> {
        let libc = version::of(target, mappings).ok_or(Unsupported::NoGlibc)?;
        let layout = Layout::of(libc.version).ok_or_else(|| unknown(libc.version))?;
        let memory = target.memory();
        Ok((libc, Self { memory, layout, mappings }))
    }

    /// malloc's static data, in libc's writable mappings.
    fn locate(&self, libc: &Libc) -> Result<Static, Unsupported> {
        let data: Vec<&Mapping> = self
            .mappings
            .iter()
            .filter(|mapping| mapping.is_own_data() && mapping.file() == Some(&libc.path))
            .collect();
        self.locate_in(libc.version, &data)
    }
}

fn unknown(version: Version) -> Unsupported {
    Unsupported::Build(format!("glibc {version}: the layout of its malloc is not known"))
}

impl Space<'_> {
    fn locate_in(&self, version: Version, data: &[&Mapping]) -> Result<Static, Unsupported> {
        let area = self.brk_area();
        locate::locate(&mut self.reader(), &self.layout, data, area)?
            .ok_or_else(|| unknown(version))
    }

    fn read(&self, version: Version, found: &Static) -> Result<Heap, Unsupported> {
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
        let mut heaps = Vec::new();
        for (arena, its) in arenas {
            let walked = self.read_arena(arena, its, found, &mut quality, &mut all, &mut heaps)?;
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
            reader: format!("glibc {version}"),
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
        Ok(divided(heap, all.breakdown, found))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::new(self.memory)
    }

    /// The area that brk moves; the kernel may show it in several pieces.
    fn brk_area(&self) -> Option<(u64, u64)> {
        let mut pieces = self.mappings.iter().filter(|mapping| mapping.backing == Backing::Heap);
        let first = pieces.next()?;
        let end = pieces.next_back().map_or(first.end, |last| last.end);
        Some((first.start, end))
    }

    /// The anonymous mapping of `address`.
    fn mapping_of(&self, address: u64) -> Option<(u64, u64)> {
        let mut own = self
            .mappings
            .iter()
            .filter(|mapping| mapping.is_own_data() && mapping.backing == Backing::Anonymous);
        let mapping = own.find(|mapping| mapping.contains(address))?;
        Some((mapping.start, mapping.end))
    }

    fn heap_bytes(parameters: Option<&Parameters>) -> u64 {
        match parameters.map(|parameters| parameters.huge_page_bytes) {
            Some(huge) if huge != 0 => huge.saturating_mul(4),
            _ => HEAP_BYTES,
        }
    }

    /// The heaps of `arena`, and which of their pages are present.
    fn heaps_of(
        &self,
        arena: u64,
        found: &Static,
    ) -> Result<Vec<(heaps::Heap, Presence)>, Unreadable> {
        let parameters = found.parameters.as_ref();
        let heaps = if arena == found.arenas[0] {
            let begin = |area: (u64, u64)| match parameters.map(|parameters| parameters.sbrk_base) {
                Some(base) if base != 0 => base,
                _ => area.0,
            };
            // Without brk's area (it never gave anything) all is mapped.
            let area = self.brk_area().unwrap_or_default();
            let begin = begin(area);
            let mapping_of = |address| self.mapping_of(address);
            heaps::main(&mut self.reader(), &self.layout, arena, begin, area, mapping_of)
        } else {
            let heap_bytes = Self::heap_bytes(parameters);
            heaps::secondary(&mut self.reader(), &self.layout, arena, heap_bytes)
        };
        unless_torn(heaps)?
            .unwrap_or_default()
            .into_iter()
            .map(|heap| {
                let presence = Presence::read(self.memory, heap.start, heap.end)?;
                Ok((heap, presence))
            })
            .collect()
    }

    /// Reads the heaps of `arena`, one again if its chain breaks. Returns their bytes.
    fn read_arena(
        &self,
        arena: u64,
        mut its: Vec<(heaps::Heap, Presence)>,
        found: &Static,
        quality: &mut Quality,
        all: &mut Census,
        presences: &mut Vec<Presence>,
    ) -> Result<u64, Unreadable> {
        let mut fast = self.fast_of(arena, &its)?;
        let mut known = fast.known();
        let mut walked = 0;
        for index in 0..its.len() {
            let (mut heap, mut presence) = its[index].clone();
            let start = heap.start;
            let mut look = self.walk_heap(arena, &heap, &presence, &fast, found)?;
            for _ in 1..ATTEMPTS {
                if look.breaks == 0 || look.is_late {
                    break;
                }
                // Its end has moved perhaps, and so have the lists.
                let now = match self.heaps_of(arena, found) {
                    Err(Unreadable::Late) => break,
                    now => now?,
                };
                let Some(own) = now.iter().find(|(heap, _)| heap.start == start).cloned() else {
                    break;
                };
                let again = self.fast_of(arena, &now)?;
                let second = self.walk_heap(arena, &own.0, &own.1, &again, found)?;
                if second.census.breakdown.unread.bytes < look.census.breakdown.unread.bytes {
                    (heap, presence) = own;
                    (look, known) = (second, again.known());
                    fast = again;
                }
            }
            quality.breaks += look.breaks;
            quality.counted &= !look.is_late;
            quality.swapped_bytes += presence.swapped_bytes();
            walked += look.census.breakdown.system.bytes;
            all.merge(look.census);
            its[index] = (heap, presence);
        }
        quality.fastbins_complete &= known == Known::All;
        quality.counted &= known != Known::Cut;
        presences.extend(its.into_iter().map(|(_, presence)| presence));
        Ok(walked)
    }

    /// The chunks in the fastbins of `arena`, whose heaps are `its`.
    fn fast_of(&self, arena: u64, its: &[(heaps::Heap, Presence)]) -> Result<Fast, Unreadable> {
        let mut fast = Fast::new(its.iter().map(|(heap, _)| heap));
        let mut reader = self.reader();
        let followed = fast.follow(&mut reader, &self.layout, arena);
        let is_short = match followed {
            Err(Unreadable::Late) => {
                fast.cut();
                true
            }
            followed => unless_torn(followed)?.unwrap_or(true),
        };
        if is_short {
            return Ok(fast);
        }
        let heads = || match fast::heads(&mut self.reader(), &self.layout, arena) {
            Err(Unreadable::Late) => Ok(Vec::new()),
            heads => Ok(unless_torn(heads)?.unwrap_or_default()),
        };
        let before = heads()?;
        let mut in_order: Vec<_> = its.iter().collect();
        in_order.sort_by_key(|(heap, _)| heap.start);
        for (heap, presence) in in_order {
            let mut notes = Notes { fast: &mut fast, layout: &self.layout };
            let end = self.walk_chain(arena, heap, presence, None, &mut notes)?;
            if end.is_late || fast.known() == Known::Cut {
                fast.cut();
                break;
            }
        }
        let heads: Vec<[u64; 2]> = before
            .into_iter()
            .zip(heads()?)
            .map(|((before, _), (after, _))| [before, after])
            .collect();
        if heads.is_empty() {
            fast.cut();
        }
        fast.follow_notes(&heads);
        Ok(fast)
    }

    /// Counts a heap.
    fn walk_heap(
        &self,
        arena: u64,
        heap: &heaps::Heap,
        presence: &Presence,
        fast: &Fast,
        found: &Static,
    ) -> Result<Look, Unreadable> {
        let census = Census::new(self.layout.tcache.chunk_bytes, self.trimmer(found));
        let mut counting = Counting { census, heap, presence, fast };
        counting.begin();
        let end = self.walk_chain(arena, heap, presence, Some(fast), &mut counting)?;
        Ok(Look { census: counting.close(), breaks: end.breaks, is_late: end.is_late })
    }

    /// Walks a heap; where the chain breaks the next chunk that the arena's lists know leads back.
    fn walk_chain(
        &self,
        arena: u64,
        heap: &heaps::Heap,
        presence: &Presence,
        fast: Option<&Fast>,
        visitor: &mut impl Visitor,
    ) -> Result<End, Unreadable> {
        let mut end = End::default();
        let mut anchors: Option<Vec<u64>> = None;
        let mut from = heap.first;
        while let Some(stop) = walk::walk(self.memory, heap, presence, visitor, from)? {
            let at = match stop {
                Stop::Broken(at) => at,
                Stop::Late(at) => {
                    end.is_late = true;
                    visitor.unread(at, heap.end);
                    break;
                }
            };
            end.breaks += 1;
            let known = match &anchors {
                Some(known) => known,
                None => {
                    let known = heaps::anchors(&mut self.reader(), &self.layout, arena);
                    let known = match known {
                        Err(Unreadable::Late) => Vec::new(),
                        known => unless_torn(known)?.unwrap_or_default(),
                    };
                    anchors.insert(known)
                }
            };
            let binned = known.get(known.partition_point(|chunk| *chunk <= at)).copied();
            let fast = fast.and_then(|fast| fast.next_behind(at));
            let next = match (binned, fast) {
                (Some(binned), Some(fast)) => Some(binned.min(fast)),
                (binned, fast) => binned.or(fast),
            };
            match next.filter(|chunk| *chunk < heap.end && end.breaks < MAX_BREAKS) {
                Some(chunk) => {
                    visitor.unread(at, chunk);
                    from = chunk;
                }
                None => {
                    visitor.unread(at, heap.end);
                    break;
                }
            }
        }
        Ok(end)
    }

    fn trimmer(&self, found: &Static) -> Trimmer {
        let page_bytes = self.memory.page_bytes();
        let unit = found.parameters.as_ref().map_or(0, |of| of.thp_page_bytes);
        let locked = self.mappings.iter().filter(|mapping| mapping.locked);
        Trimmer {
            page_bytes,
            top_unit_bytes: unit.max(page_bytes),
            brk: self.brk_area().map(|area| area.1),
            locked: locked.map(|mapping| (mapping.start, mapping.end)).collect(),
        }
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
        let found =
            mmapped::find(self.memory, &self.layout, self.mappings, &ranges, wanted, large)?;
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

/// One walk through a heap.
struct Look {
    census: Census,
    breaks: u64,
    is_late: bool,
}

/// How a walk went.
#[derive(Default)]
struct End {
    /// Places where the chain broke.
    breaks: u64,
    /// Whether the time was over before the heap was.
    is_late: bool,
}

/// Notes the links of chunks that may be in fastbins.
struct Notes<'a> {
    fast: &'a mut Fast,
    layout: &'a Layout,
}

impl Visitor for Notes<'_> {
    fn chunk(&mut self, chunk: Chunk) {
        if let (false, Some(stored)) = (chunk.is_free, chunk.link) {
            let link = self.layout.link(chunk.at + layout::HEADER_BYTES, stored);
            self.fast.note(chunk.at, link);
        }
    }

    fn goes_on(&self) -> bool {
        self.fast.known() != Known::Cut
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
        free_blocks: heap
            .arenas
            .map(|arenas| breakdown.free.chunks + breakdown.fastbins.chunks + arenas),
        error: unread as f64 / resident.max(1) as f64,
        breakdown,
        glibc: Some(found),
        ..heap
    }
}
