//! Threads' caches: chunks that look in use, and are free.
//!
//! Each thread that has a cache keeps its structure in a chunk of a size of its own. No list leads
//! there from outside of the thread, so every chunk of that size is tried: the heads of its lists must lead to
//! chunks of exactly the lists' sizes, link by link. Ordinary data does not pass.

use crate::memory::{Reader, Unreadable, unless_torn};

use super::heaps::chunk_size;
use super::layout::{HEADER_BYTES, Layout, MIN_CHUNK_BYTES, TCACHE_SMALL_BINS};

/// A list is no longer than its 16-bit count.
const MAX_LIST: usize = 1 << 16;
/// Cached chunks of all threads that are looked at.
const MAX_CHUNKS: usize = 1 << 20;

/// What threads' caches hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Chunks and their sizes, sorted by address.
    pub chunks: Vec<(u64, u64)>,
    /// Threads with something in their caches.
    pub caches: u64,
}

/// The chunks in the caches among `candidates`.
pub fn cached(reader: &mut Reader<'_>, layout: &Layout, candidates: &[u64]) -> Result<Cached, Unreadable> {
    let mut all = Cached::default();
    for candidate in candidates {
        let chunks = cache(reader, layout, *candidate)?.unwrap_or_default();
        if !chunks.is_empty() && all.chunks.len() + chunks.len() <= MAX_CHUNKS {
            all.caches += 1;
            all.chunks.extend(chunks);
        }
    }
    all.chunks.sort_unstable();
    all.chunks.dedup_by_key(|(address, _)| *address);
    Ok(all)
}

/// The cached chunks, if the chunk at `chunk` holds a cache.
fn cache(reader: &mut Reader<'_>, layout: &Layout, chunk: u64) -> Result<Option<Vec<(u64, u64)>>, Unreadable> {
    let mut chunks = Vec::new();
    let heads = chunk + HEADER_BYTES + layout.tcache.entries;
    for index in 0..layout.tcache.bins {
        let Some(mut block) = unless_torn(reader.word(heads + index as u64 * 8))? else {
            return Ok(None);
        };
        let mut length = 0;
        while block != 0 {
            length += 1;
            let cached = block.wrapping_sub(HEADER_BYTES);
            let size = unless_torn(chunk_size(reader, cached))?;
            let size = size.filter(|&size| fits(index, size) && length <= MAX_LIST);
            let (Some(size), Some(stored)) = (size, unless_torn(reader.word(block))?) else {
                return Ok(None);
            };
            chunks.push((cached, size));
            block = layout.link(block, stored);
        }
    }
    Ok(Some(chunks))
}

/// Whether list `index` may hold a chunk of `size`.
fn fits(index: usize, size: u64) -> bool {
    if index < TCACHE_SMALL_BINS {
        size == MIN_CHUNK_BYTES + index as u64 * HEADER_BYTES
    } else {
        size >= MIN_CHUNK_BYTES + TCACHE_SMALL_BINS as u64 * HEADER_BYTES
    }
}
