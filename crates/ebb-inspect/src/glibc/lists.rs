//! The lists of free chunks that an arena keeps in bins: they lead a walk back onto the chain where it broke.
//!
//! Lists of a busy or damaged process may lead anywhere, also in circles: what is no chunk of the heap ends
//! the list, and the number is bounded.

use crate::memory::{Reader, Unreadable};

use super::layout::{BINS, HEADER_BYTES, Layout};

/// As many chunks of bins are looked at to get back onto the chain.
const MAX_BINNED: usize = 1 << 16;

/// Chunks in the bins of `arena`, and its top: places where the chain goes on.
pub fn anchors(
    reader: &mut Reader<'_>,
    layout: &Layout,
    arena: u64,
) -> Result<Vec<u64>, Unreadable> {
    let mut addresses = vec![reader.word(arena + layout.arena.top)?];
    for index in 0..BINS as u64 {
        let own = arena + layout.arena.bins + index * 16 - HEADER_BYTES;
        let mut chunk = reader.word(own + HEADER_BYTES)?;
        while chunk != own && addresses.len() < MAX_BINNED {
            if chunk % HEADER_BYTES != 0 {
                break;
            }
            // The one behind must name this one as its predecessor.
            let next = match reader.word(chunk.wrapping_add(HEADER_BYTES)) {
                Ok(next) => next,
                Err(error) if error.is_final() => return Err(error),
                Err(_) => break,
            };
            addresses.push(chunk);
            match reader.word(next.wrapping_add(HEADER_BYTES + 8)) {
                Ok(previous) if previous == chunk => chunk = next,
                Err(error) if error.is_final() => return Err(error),
                _ => break,
            }
        }
    }
    addresses.retain(|address| address.is_multiple_of(HEADER_BYTES));
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// The size of the chunk at `chunk`.
pub fn chunk_size(reader: &mut Reader<'_>, chunk: u64) -> Result<u64, Unreadable> {
    if !chunk.is_multiple_of(HEADER_BYTES) {
        return Err(Unreadable::Unmapped(chunk));
    }
    Ok(reader.word(chunk.wrapping_add(8))? & !7)
}
