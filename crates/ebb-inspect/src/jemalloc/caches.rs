//! The freed blocks that threads keep: jemalloc counts them as allocated, and so do its slabs.

use crate::exact::low_quarter;
use crate::memory::{Reader, Unreadable, unless_torn};

use super::layout::{Cache, Layout, SMALL_CLASSES};

/// Threads' caches in one arena; a longer ring is torn.
const MAX_CACHES: usize = 1 << 16;
/// Blocks in all caches that are looked at.
const MAX_BLOCKS: usize = 1 << 22;
/// A stack holds no more: its bounds are 16 bits of an address.
const MAX_STACK: u64 = 1 << 13;
/// Stacks of large classes, before 5.3; unused ones are empty.
const LARGE_STACKS: u64 = 37;
const STACK_BYTES: u64 = 24;

/// What threads' caches hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Addresses of blocks, sorted, each once.
    pub blocks: Vec<u64>,
    /// Caches.
    pub caches: u64,
    /// Stacks that changed while they were read.
    pub torn: u64,
}

/// The blocks in the caches of `arenas`.
pub fn cached(
    reader: &mut Reader<'_>,
    layout: &Layout,
    arenas: impl Iterator<Item = u64>,
) -> Result<Cached, Unreadable> {
    let mut all = Cached::default();
    for arena in arenas {
        let head = arena.saturating_add(layout.arena.caches);
        let Some(first) = unless_torn(reader.word(head))?.filter(|&first| first != 0) else {
            continue;
        };
        let mut at = first;
        for _ in 0..MAX_CACHES {
            match unless_torn(cache(reader, layout, at, &mut all))? {
                Some(next) if next != first && next != 0 => at = next,
                Some(_) => break,
                None => {
                    all.torn += 1;
                    break;
                }
            }
        }
    }
    all.blocks.sort_unstable();
    all.blocks.dedup();
    Ok(all)
}

/// Reads the cache that the descriptor at `descriptor` is for; answers the next descriptor.
fn cache(reader: &mut Reader<'_>, layout: &Layout, descriptor: u64, all: &mut Cached) -> Result<u64, Unreadable> {
    let word = |reader: &mut Reader<'_>, index: u64| reader.word(descriptor.saturating_add(index * 8));
    let next = word(reader, 0)?;
    all.caches += 1;
    match layout.cache {
        Cache::Bounded(stacks) => {
            let table = word(reader, 2)?;
            for index in 0..stacks {
                let stack = table.saturating_add(index * STACK_BYTES);
                match unless_torn(bounded(reader, stack))?.flatten() {
                    Some((from, count)) => take(reader, from, count, all)?,
                    None => all.torn += 1,
                }
            }
        }
        Cache::Counted => {
            let tables = [(word(reader, 2)?, SMALL_CLASSES), (word(reader, 3)?, LARGE_STACKS)];
            for (table, stacks) in tables {
                for index in 0..stacks {
                    let stack = table.saturating_add(index * STACK_BYTES);
                    match unless_torn(counted(reader, stack))?.flatten() {
                        Some((from, count)) => take(reader, from, count, all)?,
                        None => all.torn += 1,
                    }
                }
            }
        }
    }
    Ok(next)
}

/// First entry and number of entries of a stack that grows down to its head; `None` if it is torn.
fn bounded(reader: &mut Reader<'_>, stack: u64) -> Result<Option<(u64, u64)>, Unreadable> {
    let head = reader.word(stack)?;
    let bounds = reader.word(stack.saturating_add(16))?;
    let (full, empty) = (low_quarter(bounds >> 16), low_quarter(bounds >> 32));
    let used = u64::from(empty.wrapping_sub(low_quarter(head)));
    let room = u64::from(empty.wrapping_sub(full));
    if head == 0 || used == 0 {
        return Ok(Some((head, 0)));
    }
    let is_sound = used <= room && used.is_multiple_of(8) && head.is_multiple_of(8);
    Ok(is_sound.then_some((head, used / 8)))
}

/// The same of a stack that counts its entries, which lie below an address.
fn counted(reader: &mut Reader<'_>, stack: u64) -> Result<Option<(u64, u64)>, Unreadable> {
    let count = u64::from(reader.int(stack.saturating_add(4))?);
    let above = reader.word(stack.saturating_add(16))?;
    if above == 0 || count == 0 {
        return Ok(Some((above, 0)));
    }
    let from = above.checked_sub(count * 8);
    Ok(from.filter(|from| from.is_multiple_of(8) && count <= MAX_STACK).map(|from| (from, count)))
}

fn take(reader: &mut Reader<'_>, from: u64, count: u64, all: &mut Cached) -> Result<(), Unreadable> {
    for index in 0..count.min(MAX_STACK) {
        if all.blocks.len() >= MAX_BLOCKS {
            break;
        }
        match unless_torn(reader.word(from.saturating_add(index * 8)))? {
            Some(0) | None => {}
            Some(block) => all.blocks.push(block),
        }
    }
    Ok(())
}
