//! A page map of two levels, as jemalloc and tcmalloc have one: found by what it must be, not by name, because a
//! distribution's library is stripped.
//!
//! The root lies in the data of the allocator's file, and its words lead to leaves. A leaf has a word for each page;
//! that of a run's first page leads to what tells of the run, its address among it. Every word of the data
//! that may lead to a leaf is tried: runs at the addresses that the leaf covers are no accident.

use crate::memory::{Reader, Unreadable, unless_torn, words};
use crate::space::Space;

/// Words of the file's data that are looked at more closely; more of them are no allocator's.
const MAX_CANDIDATES: usize = 1 << 20;
/// Runs of a leaf that are held against it.
const SAMPLES: u32 = 8;
/// Entries that may lead to nothing: ends of runs that begin in front of the leaf, and what is in motion.
const MAX_MISSES: u32 = 64;
const KERNEL_PAGE: u64 = 4096;

/// How a map is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Words of the root.
    pub(crate) root_entries: u64,
    /// Words of a leaf, a power of two.
    pub(crate) leaf_entries: u64,
    /// A leaf's address is a multiple of it.
    pub(crate) alignment: u64,
}

/// A run of pages of the allocator's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Number of its first page.
    pub(crate) first: u64,
    pub(crate) pages: u64,
}

/// The words of `data` that lead into the process's own memory, with their places.
pub(crate) fn candidates(space: Space<'_>, data: &[(u64, u64)]) -> Result<Vec<(u64, u64)>, Unreadable> {
    let mut candidates = Vec::new();
    for &range in data {
        words(space.memory, range, |at, word| {
            if candidates.len() < MAX_CANDIDATES && space.own(word).is_some() {
                candidates.push((at, word));
            }
        })?;
    }
    Ok(candidates)
}

/// The address of the root in `data` to which one of the `candidates` belongs. `follow` reads the run that an entry of
/// a leaf leads to.
pub(crate) fn root<'a>(
    space: Space<'a>,
    data: &[(u64, u64)],
    candidates: &[(u64, u64)],
    shape: Shape,
    follow: impl Fn(&mut Reader<'a>, u64) -> Result<Option<Run>, Unreadable>,
) -> Result<Option<u64>, Unreadable> {
    let mut reader = space.reader();
    for &(at, leaf) in candidates {
        let number = unless_torn(leaf_number(&mut reader, space, shape, leaf, &follow))?.flatten();
        let Some(root) = number.and_then(|number| at.checked_sub(number * 8)) else {
            continue;
        };
        let end = root.saturating_add(shape.root_entries * 8);
        if data.iter().any(|&(from, to)| from <= root && end <= to) {
            return Ok(Some(root));
        }
    }
    Ok(None)
}

/// The place in the root of the leaf at `leaf`, if one is there.
fn leaf_number<'a>(
    reader: &mut Reader<'a>,
    space: Space<'a>,
    shape: Shape,
    leaf: u64,
    follow: impl Fn(&mut Reader<'a>, u64) -> Result<Option<Run>, Unreadable>,
) -> Result<Option<u64>, Unreadable> {
    let end = leaf.saturating_add(shape.leaf_entries * 8);
    if !leaf.is_multiple_of(shape.alignment) || !space.is_mapped(leaf, end) {
        return Ok(None);
    }
    let presence = space.presence(leaf, end)?;
    let (mut agreed, mut samples, mut misses) = (None, 0, 0);
    let mut at = leaf;
    while at < end && samples < SAMPLES && misses < MAX_MISSES {
        if !presence.is_present(at) {
            at = (at & !(KERNEL_PAGE - 1)) + KERNEL_PAGE;
            continue;
        }
        let entry = reader.word(at)?;
        let place = (at - leaf) / 8;
        at += 8;
        if entry == 0 {
            continue;
        }
        let run = unless_torn(follow(reader, entry))?.flatten();
        match run.filter(|run| run.first % shape.leaf_entries == place) {
            Some(run) => {
                let number = run.first / shape.leaf_entries;
                if *agreed.get_or_insert(number) != number {
                    return Ok(None);
                }
                samples += 1;
                // What lies within a run may be of one that it was merged from.
                at = (leaf + place * 8).saturating_add(run.pages.saturating_mul(8));
            }
            None => misses += 1,
        }
    }
    Ok(agreed.filter(|&number| number < shape.root_entries))
}
