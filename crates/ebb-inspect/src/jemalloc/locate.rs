//! Finds jemalloc's structures by what they must be, not by name: a distribution's library is stripped.
//!
//! Every word of the data of the file that may lead to an arena or to a leaf of the page map is tried.
//! An arena's number stands in two places; a leaf leads to extents whose addresses are those that the leaf is
//! for. Ordinary data does not pass.

use std::collections::BTreeMap;

use crate::memory::{Memory, Reader, Unreadable, scan, unless_torn};
use crate::space::Space;

use super::extents::Extent;
use super::layout::{LEAF_ENTRIES, LEAF_SPAN, Layout, PAGE_BYTES, ROOT_ENTRIES};

/// jemalloc numbers arenas with 12 bits.
const MAX_ARENAS: u64 = 4095;
/// Words of the file's data that are looked at more closely; more of them are not a jemalloc's.
const MAX_CANDIDATES: usize = 1 << 20;
/// Extents of a leaf that are held against it.
const SAMPLES: u32 = 8;
/// Entries that may lead to nothing: ends of extents that begin in front of the leaf, and what is in motion.
const MAX_MISSES: u32 = 64;

/// What the file's data leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The arenas by their numbers.
    pub arenas: BTreeMap<u64, u64>,
    /// Address of the page map's root.
    pub root: u64,
}

/// The words of `data` that lead into the process's own memory.
pub fn candidates<M: Memory>(
    space: Space<'_, M>,
    data: &[(u64, u64)],
) -> Result<Vec<(u64, u64)>, Unreadable> {
    let mut candidates = Vec::new();
    for &range in data {
        scan::words(space.memory, range, |at, word| {
            if candidates.len() < MAX_CANDIDATES && space.own(word).is_some() {
                candidates.push((at, word));
            }
        })?;
    }
    Ok(candidates)
}

/// Arenas and page map among `candidates`, if both are there as `layout` has them.
pub fn locate<M: Memory>(
    space: Space<'_, M>,
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
    for (at, word) in candidates.iter().copied() {
        let number = unless_torn(leaf_number(&mut reader, space, layout, word))?.flatten();
        let root = number.and_then(|number| at.checked_sub(number * 8));
        if let Some(root) = root.filter(|&root| is_within(data, root)) {
            return Ok(Some(Found { arenas, root }));
        }
    }
    Ok(None)
}

/// The number of the arena at `address`, if one is there.
fn arena_index<M: Memory>(
    reader: &mut Reader<&M>,
    space: Space<'_, M>,
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

/// The place in the root of the leaf at `leaf`, if one is there.
fn leaf_number<M: Memory>(
    reader: &mut Reader<&M>,
    space: Space<'_, M>,
    layout: &Layout,
    leaf: u64,
) -> Result<Option<u64>, Unreadable> {
    let end = leaf.saturating_add(LEAF_ENTRIES * 8);
    if !leaf.is_multiple_of(64) || !space.is_mapped(leaf, end) {
        return Ok(None);
    }
    let presence = space.presence(leaf, end)?;
    let (mut agreed, mut samples, mut misses) = (None, 0, 0);
    let mut at = leaf;
    while at < end && samples < SAMPLES && misses < MAX_MISSES {
        if !presence.is_present(at) {
            at = (at & !(PAGE_BYTES - 1)) + PAGE_BYTES;
            continue;
        }
        let entry = reader.word(at)?;
        let place = (at - leaf) / 8;
        at += 8;
        if entry == 0 {
            continue;
        }
        let extent = unless_torn(Extent::read(reader, layout, entry))?.flatten();
        let begins = |extent: &Extent| extent.start / PAGE_BYTES % LEAF_ENTRIES == place;
        match extent.filter(begins) {
            Some(extent) => {
                let number = extent.start / LEAF_SPAN;
                if *agreed.get_or_insert(number) != number {
                    return Ok(None);
                }
                samples += 1;
                // What lies within an extent may be of one that it was merged from.
                let entries = (extent.end - extent.start) / PAGE_BYTES;
                at = (leaf + place * 8).saturating_add(entries.saturating_mul(8));
            }
            None => misses += 1,
        }
    }
    Ok(agreed.filter(|&number| number < ROOT_ENTRIES))
}

fn is_within(data: &[(u64, u64)], root: u64) -> bool {
    let end = root.saturating_add(ROOT_ENTRIES * 8);
    data.iter().any(|&(from, to)| from <= root && end <= to)
}
