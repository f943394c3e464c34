//! Chunks that are mappings of their own: large blocks.
//!
//! No list leads to them. malloc counts them, so a search through the anonymous mappings is complete when
//! it has found that number and that many bytes; else it is a part and said to be one.

use crate::memory::{Memory, Page, Presence, Unreadable};
use crate::target::{Backing, Mapping};

use super::layout::{HEADER_BYTES, Layout};
use crate::line::Line;

const IS_MMAPPED: u64 = 2;
const FLAGS: u64 = 7;
/// Pages without a chunk that are tried in a mapping before the rest of it is somebody else's.
const TRIES: u64 = 1024;

/// Finds the chunks that are mappings in `mappings`, up to `wanted` (chunks and bytes). Ranges in `heaps`
/// are left out. `each` gets every chunk's first address and its end.
pub fn find(
    memory: &impl Memory,
    layout: &Layout,
    mappings: &[Mapping],
    heaps: &[(u64, u64)],
    wanted: (u64, u64),
    mut each: impl FnMut(u64, u64),
) -> Result<Line, Unreadable> {
    let mut found = Line::default();
    let own = mappings
        .iter()
        .filter(|mapping| mapping.is_own_data() && mapping.backing == Backing::Anonymous);
    for mapping in own {
        let mut at = mapping.start;
        let mut tries = 0;
        while at < mapping.end && tries < TRIES && !is_all(layout, &found, wanted) {
            if let Some((_, end)) = heaps
                .iter()
                .find(|(start, end)| (*start..*end).contains(&at))
            {
                at = *end;
                continue;
            }
            match chunk_at(memory, layout, at, mapping.end)? {
                Some((place, len)) if found.bytes + len <= wanted.1 => {
                    each(at + place, at + len);
                    let presence = Presence::read(memory, at, at + len)?;
                    found.add(at, at + len, &presence);
                    at += len;
                    tries = 0;
                }
                _ => {
                    at += memory.page_bytes();
                    tries += 1;
                }
            }
        }
    }
    Ok(found)
}

/// Whether what was found is what malloc counted.
pub fn is_all(layout: &Layout, found: &Line, (chunks, bytes): (u64, u64)) -> bool {
    let is_sum = |found| {
        bytes
            .checked_sub(found)
            .is_some_and(|more| more <= layout.mmapped_drift_bytes())
    };
    found.chunks == chunks && is_sum(found.bytes)
}

/// Where on the page `at` a chunk begins, if one does, and the bytes of the mapping that it makes up.
fn chunk_at(
    memory: &impl Memory,
    layout: &Layout,
    at: u64,
    end: u64,
) -> Result<Option<(u64, u64)>, Unreadable> {
    let mut page = [Page::Absent];
    memory.pages(at, &mut page)?;
    if page[0] != Page::Present {
        return Ok(None);
    }
    let mut bytes = vec![0; memory.page_bytes() as usize];
    match memory.copy(&[(at, bytes.len())], &mut bytes) {
        Ok(()) => {}
        Err(error) if error.is_final() => return Err(error),
        Err(_) => return Ok(None),
    }
    // Where a block must be aligned the chunk begins later, and says how much.
    let (words, _) = bytes.as_chunks::<8>();
    let chunks = words.chunks_exact(2).enumerate();
    let mut found = chunks.filter_map(|(index, header)| {
        let [offset, size] = [header[0], header[1]].map(u64::from_ne_bytes);
        let place = index as u64 * HEADER_BYTES;
        // The last bit says "huge page" since 2.43.
        if offset & !1 != place || size & FLAGS != IS_MMAPPED {
            return None;
        }
        let header = if layout.mmapped_without_header {
            HEADER_BYTES
        } else {
            0
        };
        let len = place.checked_add(size & !FLAGS)?.checked_add(header)?;
        let fits = len != 0 && len % memory.page_bytes() == 0 && len <= end - at;
        fits.then_some((place, len))
    });
    Ok(found.next())
}
