//! A page of mimalloc: a run of slices with blocks of one size, or with nothing.

use crate::memory::{Memory, Reader, Unreadable, unless_torn};

/// What a run of slices is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// mimalloc's own tables.
    Own,
    /// No page.
    Free,
    /// Blocks of one size from `first` on, `live` of `capacity` in use.
    Blocks {
        first: u64,
        bytes: u64,
        capacity: u64,
        live: u64,
    },
}

/// A run of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub start: u64,
    pub end: u64,
    pub state: State,
}

/// The length of the list of blocks that other threads freed, which begins at `block` and stays in `from..to`.
pub fn freed_blocks<M: Memory>(
    reader: &mut Reader<&M>,
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
