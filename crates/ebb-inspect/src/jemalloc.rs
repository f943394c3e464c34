//! jemalloc 5.2 and 5.3 on x86-64: the settings in force, and a breakdown of every extent.
//!
//! [`read`] is the entry for what it holds, [`settings`] for its settings alone. `locate` finds its structures
//! in the data of a file, symbols or none; `layout` has their fields by version; `caches` reads what
//! threads keep, `extents` goes through the page map and counts.
//!
//! jemalloc's own statistics are a snapshot of the last `epoch`; what is read here is of now. The figures
//! are held against its counts of active pages, and refused where they differ.

mod caches;
mod extents;
mod layout;
mod locate;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;

use ebb_allocators::Allocator;

use crate::breakdown::Line;
use crate::heap::{Heap, Unsupported, consistent};
use crate::image::Image;
use crate::memory::{Unreadable, unless_torn};
use crate::space::Space;
use crate::target::Target;

use layout::Layout;
use locate::{Found, recognise, version};

pub use settings::{Settings, of_process as settings};

const NAME: &str = Allocator::Jemalloc.name();
/// Extents in use may differ from jemalloc's count by this part: the process runs meanwhile.
const MAX_DIFFERENCE: f64 = 0.05;
/// Differences below this many bytes are accepted too.
const LEAST_DIFFERENCE: u64 = 8 << 20;
/// Blocks of an arena's own memory; a longer list is torn.
const MAX_BASE_BLOCKS: usize = 1 << 16;

/// What the jemalloc in the mapped file `file` of `target` holds.
pub fn read(target: &Target, file: &Path) -> Result<Heap, Unsupported> {
    let mappings = target.mappings()?;
    let space = Space { memory: target.memory(), mappings: &mappings };
    let image = Image::of(target, &mappings, file).ok_or(Unsupported::NotThere(NAME))?;
    let version = version(&image);
    let mut heap = of_data(space, image.data(), version.as_deref())?;
    let asked = settings::of_variables(&image, &mut space.reader())?.unwrap_or_default();
    let thread = settings::has_background_thread(target);
    let others = [
        ("background_thread", thread.map(|it| it.to_string())),
        ("background_thread_asked", asked.background_thread_asked.map(|it| it.to_string())),
        ("narenas", asked.narenas.map(|it| it.to_string())),
    ];
    let others = others.into_iter();
    let known = others.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    heap.settings.extend(known);
    Ok(heap)
}

fn of_data(space: Space<'_>, data: &[(u64, u64)], version: Option<&str>) -> Result<Heap, Unsupported> {
    let Some((layout, found)) = recognise(space, data, version)? else {
        return Err(match version {
            Some(version) => Unsupported::Layout(format!("{NAME} {}", short(version))),
            None => Unsupported::NotThere(NAME),
        });
    };
    let name = match version {
        Some(version) => format!("{NAME} {}", short(version)),
        None => {
            let (major, minor, patch) = layout.version;
            format!("{NAME}, layout of {major}.{minor}.{patch}")
        }
    };
    consistent(|| once(space, layout, &found, &name))
}

/// Reads all once; in words where the figures contradict each other.
fn once(space: Space<'_>, layout: &Layout, found: &Found, name: &str) -> Result<Result<Heap, String>, Unreadable> {
    let mut reader = space.reader();
    let arenas = || found.arenas.values().copied();
    let cached = caches::cached(&mut reader, layout, arenas())?;
    let mut sum = extents::walk(space, layout, found.root, &cached.blocks)?;
    let mut counted = 0u64;
    // Pages that the reader has cached are of before the walk.
    let mut reader = space.reader();
    for arena in arenas() {
        let pages = reader.word(arena.saturating_add(layout.arena.active_pages));
        let pages = unless_torn(pages)?.unwrap_or(0);
        counted = counted.saturating_add(pages.saturating_mul(layout::PAGE_BYTES));
    }
    let difference = counted.abs_diff(sum.active_bytes);
    let bound = (sum.active_bytes as f64 * MAX_DIFFERENCE).max(LEAST_DIFFERENCE as f64);
    if difference as f64 > bound {
        return Ok(Err(format!(
            "{name}: its arenas count {:.1} MB in use, its page map {:.1} MB",
            counted as f64 / 1e6,
            sum.active_bytes as f64 / 1e6
        )));
    }
    for arena in arenas() {
        sum.breakdown.overhead += own_memory(space, layout, arena)?;
    }
    sum.breakdown.close();
    let first = found.arenas.get(&0).copied().unwrap_or_default();
    let (dirty, muzzy) = settings::of_arena(&mut reader, layout, first)?;
    let decays = [("dirty_decay_ms", dirty), ("muzzy_decay_ms", muzzy)];
    let decays = decays.into_iter();
    let settings = decays.filter_map(|(name, ms)| Some((name.to_owned(), ms?.to_string())));
    Ok(Ok(Heap {
        arenas: Some(found.arenas.len() as u64),
        classes: sum.classes.0,
        torn: sum.torn + cached.torn,
        missing: counted.saturating_sub(sum.active_bytes),
        settings: settings.collect(),
        error: difference as f64 / counted.max(1) as f64,
        ..Heap::of(name, sum.breakdown)
    }))
}

/// The memory in which `arena` has its own structures: the blocks of its base.
fn own_memory(space: Space<'_>, layout: &Layout, arena: u64) -> Result<Line, Unreadable> {
    let mut reader = space.reader();
    let mut line = Line::default();
    let base = unless_torn(reader.word(arena.saturating_add(layout.arena.base)))?.unwrap_or(0);
    let mut at = unless_torn(reader.word(base.saturating_add(layout.base_blocks)))?.unwrap_or(0);
    let mut seen = BTreeSet::new();
    while at != 0 && seen.len() < MAX_BASE_BLOCKS && seen.insert(at) {
        let Some(size) = unless_torn(reader.word(at))? else {
            break;
        };
        let end = at.saturating_add(size);
        if !space.is_mapped(at, end) {
            break;
        }
        line.add(at, end, &space.presence(at, end)?);
        at = unless_torn(reader.word(at.saturating_add(8)))?.unwrap_or(0);
    }
    Ok(line)
}

/// The number alone.
fn short(version: &str) -> &str {
    version.split('-').next().unwrap_or(version)
}
