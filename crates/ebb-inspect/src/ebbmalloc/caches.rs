//! The slots in the caches of all threads, by address: free for a trim, which empties the caches, and not in the
//! slabs' bitmaps.

use ebb_stats::layout::Place;

use super::slab::Class;
use crate::memory::{Reader, Unreadable, unless_torn};
use crate::space::Space;

/// Caches at most: more threads than a kernel has by default.
const MOST_CACHES: u32 = 1 << 16;
/// Slots of one stack at most; the largest has a few thousand.
const MOST_ENTRIES: u64 = 1 << 16;

/// Slots in all caches: sorted ranges of addresses.
#[derive(Debug)]
pub(super) struct Cached(Vec<(u64, u64)>);

impl Cached {
    /// Address and size of those in `from..to`.
    pub(super) fn within(&self, from: u64, to: u64) -> &[(u64, u64)] {
        let first = self.0.partition_point(|&(address, _)| address < from);
        let behind = self.0.partition_point(|&(address, _)| address < to);
        &self.0[first..behind.max(first)]
    }
}

pub(super) fn read(space: Space<'_>, place: &Place, classes: &[Class]) -> Result<Cached, Unreadable> {
    let offsets = &place.offsets;
    let mut reader = space.reader();
    let mut slots = Vec::new();
    let first = place.heap.wrapping_add(offsets.heap_first_cache);
    let mut cache = unless_torn(reader.word(first))?.unwrap_or(0);
    let mut caches = 0;
    while cache != 0 && caches < MOST_CACHES {
        caches += 1;
        for (number, class) in (1u64..).zip(&classes[1..]) {
            let word = |offset: u64, index: u64| cache.wrapping_add(offset).wrapping_add(index * 8);
            let stack = (word(offsets.cache_base, number), word(offsets.cache_top, number));
            entries(&mut reader, stack, class.size, &mut slots)?;
            if number <= offsets.rationed {
                let ration = offsets.classes - 1 + number;
                let ration = (word(offsets.cache_low, ration), word(offsets.cache_top, ration));
                entries(&mut reader, ration, class.size, &mut slots)?;
            }
        }
        let next = cache.wrapping_add(offsets.cache_next);
        cache = unless_torn(reader.word(next))?.unwrap_or(0);
    }
    slots.sort_unstable();
    Ok(Cached(slots))
}

/// The entries between the addresses in two words.
fn entries(
    reader: &mut Reader<'_>,
    (from, to): (u64, u64),
    size: u64,
    slots: &mut Vec<(u64, u64)>,
) -> Result<(), Unreadable> {
    let from = unless_torn(reader.word(from))?.unwrap_or(0);
    let to = unless_torn(reader.word(to))?.unwrap_or(0);
    let count = to.saturating_sub(from) / 8;
    if from == 0 || count > MOST_ENTRIES {
        return Ok(());
    }
    let mut bytes = vec![0; count as usize * 8];
    if unless_torn(reader.bytes(from, &mut bytes))?.is_some() {
        let words = bytes.as_chunks().0.iter();
        slots.extend(words.map(|word| (u64::from_ne_bytes(*word), size)));
    }
    Ok(())
}
