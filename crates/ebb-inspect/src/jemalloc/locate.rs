//! Which jemalloc it is, by the text of its version and the layout that fits; and its structures, by what they must be, not by name: a distribution's library is stripped.
//!
//! Every word of the data of the file that may lead to an arena is tried: an arena's number is in two
//! places, and ordinary data does not pass. The page map is found by [`page_map`].

use std::collections::BTreeMap;

use crate::image::Image;
use crate::memory::{Reader, Unreadable, unless_torn};
use crate::page_map::{self, Run, Shape};
use crate::space::Space;

use super::extents::Extent;
use super::layout::{LAYOUTS, LEAF_ENTRIES, Layout, PAGE_BYTES, ROOT_ENTRIES};

/// jemalloc numbers arenas with 12 bits.
const MAX_ARENAS: u64 = 4095;
/// The text of a version, its commit included, is no longer.
const VERSION_BYTES: usize = 80;

/// What the file's data leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The arenas by their numbers.
    pub arenas: BTreeMap<u64, u64>,
    /// Address of the page map's root.
    pub root: u64,
}

/// Arenas and page map among `candidates`, if both are there as `layout` has them.
fn locate(
    space: Space<'_>,
    data: &[(u64, u64)],
    candidates: &[(u64, u64)],
    layout: &Layout,
) -> Result<Option<Found>, Unreadable> {
    let mut reader = space.reader();
    let mut arenas = BTreeMap::new();
    for (_, word) in candidates.iter().copied() {
        if let Some(index) = unless_torn(arena_index(&mut reader, space, layout, word))?.flatten() {
            arenas.entry(index).or_insert(word);
        }
    }
    if !arenas.contains_key(&0) {
        return Ok(None);
    }
    let shape = Shape { root_entries: ROOT_ENTRIES, leaf_entries: LEAF_ENTRIES, alignment: 64 };
    let root = page_map::root(space, data, candidates, shape, |reader, entry| {
        let extent = Extent::read(reader, layout, entry)?;
        Ok(extent
            .map(|extent| Run { first: extent.start / PAGE_BYTES, pages: (extent.end - extent.start) / PAGE_BYTES }))
    })?;
    Ok(root.map(|root| Found { arenas, root }))
}

/// The number of the arena at `address`, if one is there.
fn arena_index(
    reader: &mut Reader<'_>,
    space: Space<'_>,
    layout: &Layout,
    address: u64,
) -> Result<Option<u64>, Unreadable> {
    let fields = &layout.arena;
    if !address.is_multiple_of(16) {
        return Ok(None);
    }
    let base = reader.word(address.saturating_add(fields.base))?;
    // The base lies in the same mapping as its arena: both are cut from its first block.
    let near = space.own(address).is_some_and(|own| own.contains(base));
    if !near || !base.is_multiple_of(16) || base >= address {
        return Ok(None);
    }
    let index = u64::from(reader.int(base)?);
    let again = match fields.index {
        Some(field) => u64::from(reader.int(address.saturating_add(field))?),
        None => index,
    };
    // A decay is -1 or some milliseconds.
    let decays = [fields.dirty_decay_ms, fields.muzzy_decay_ms];
    for field in decays {
        let ms = reader.word(address.saturating_add(field))?.cast_signed();
        if !(-1..1 << 44).contains(&ms) {
            return Ok(None);
        }
    }
    let blocks = reader.word(base.saturating_add(layout.base_blocks))?;
    let is_arena = index == again && index < MAX_ARENAS && space.own(blocks).is_some();
    Ok(is_arena.then_some(index))
}

/// The version that a jemalloc answers to `mallctl("version")`, which every build contains, commit included.
pub(super) fn version(image: &Image) -> Option<String> {
    image.search(VERSION_BYTES, |bytes| {
        let mut dashes = memchr::memmem::find_iter(bytes, b"-g");
        dashes.find_map(|at| version_around(bytes, at))
    })
}

/// `5.3.0-0-g` and a commit, whose `-g` is at `at`.
pub(super) fn version_around(bytes: &[u8], at: usize) -> Option<String> {
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.' || *byte == b'-';
    let begin = bytes[..at].iter().rposition(|byte| !is_number(byte))? + 1;
    let rest = &bytes[at + 2..];
    let end = rest.iter().position(|byte| !byte.is_ascii_hexdigit())?;
    // A commit of git's, or the first digits of one.
    if !(7..=40).contains(&end) || rest[end] != 0 || bytes[begin - 1] != 0 {
        return None;
    }
    let text = std::str::from_utf8(&bytes[begin..at + 2 + end]).ok()?;
    let (number, commits) = text.split_once('-')?;
    let mut parts = number.split('.');
    let major: u32 = parts.next()?.parse().ok()?;
    let three = parts.clone().count() == 2 && parts.all(|part| part.parse::<u32>().is_ok());
    let counted = commits.split('-').next()?.parse::<u32>().is_ok();
    ((3..=9).contains(&major) && three && counted).then(|| text.to_owned())
}

/// The layout and the structures, that of the file's own version first.
pub(super) fn recognise(
    space: Space<'_>,
    data: &[(u64, u64)],
    version: Option<&str>,
) -> Result<Option<(&'static Layout, Found)>, Unreadable> {
    let candidates = page_map::candidates(space, data)?;
    let is_own = |layout: &Layout| {
        let (major, minor, patch) = layout.version;
        version.is_some_and(|text| text.starts_with(&format!("{major}.{minor}.{patch}-")))
    };
    let (own, others): (Vec<_>, Vec<_>) = LAYOUTS.iter().partition(|layout| is_own(layout));
    for layout in own.into_iter().chain(others) {
        if let Some(found) = locate(space, data, &candidates, layout)? {
            return Ok(Some((layout, found)));
        }
    }
    Ok(None)
}
