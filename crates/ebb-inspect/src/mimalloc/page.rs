//! A page of mimalloc: a run of slices with blocks of one size, or with nothing.

use crate::memory::{Reader, Unreadable, unless_torn};

/// What a run of slices is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// mimalloc's own tables.
    Own,
    /// No page.
    Free,
    /// Blocks of one size from `first` on, `live` of `capacity` in use.
    Blocks { first: u64, bytes: u64, capacity: u64, live: u64 },
}

/// A run of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub start: u64,
    pub end: u64,
    pub state: State,
}

/// What the two low bits of a page's word about blocks that other threads freed say: such a block is being put on the
/// list of the owner's heap.
const IS_PUT_ON_HEAPS_LIST: u64 = 1;
/// It is on that list, and further ones go on the page's own.
const IS_ON_HEAPS_LIST: u64 = 2;

/// How many of a page's `used` blocks other threads freed, by its `word` about them. They count as used until their
/// owner takes them back.
pub fn freed_by_others(
    reader: &mut Reader<'_>,
    word: u64,
    range: (u64, u64),
    used: u64,
) -> Result<u64, Unreadable> {
    let of_page = freed_blocks(reader, word & !3, range, used)?;
    // The heap's list has one block of a page at most: the owner takes it off before another one can follow.
    let of_heap = u64::from(matches!(word & 3, IS_PUT_ON_HEAPS_LIST | IS_ON_HEAPS_LIST));
    Ok((of_page + of_heap).min(used))
}

/// The length of the page's own list of blocks that other threads freed, which begins at `block` and stays in `from..to`.
pub fn freed_blocks(
    reader: &mut Reader<'_>,
    mut block: u64,
    (from, to): (u64, u64),
    most: u64,
) -> Result<u64, Unreadable> {
    let mut count = 0;
    while (from..to).contains(&block) && count < most {
        count += 1;
        block = unless_torn(reader.word(block))?.unwrap_or(0);
    }
    Ok(count)
}
