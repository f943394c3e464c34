//! The pool of sampled guards, as [`ebb_stats::guards`] says that it lies in memory.

use ebb_stats::guards::{PLACES, POOL_WORDS, RECORD_WORDS, Record};
use ebb_stats::layout::Place;

use crate::memory::{Reader, Unreadable, unless_torn};

/// The pool as it was read.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Where its pages begin.
    pub start: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// By place. None for a process that has had no block with guards.
    pub records: Vec<Record>,
}

impl Pool {
    /// Whether `address` lies in its pages.
    pub fn contains(&self, address: u64) -> bool {
        let bytes = (2 * self.records.len() as u64 + 1) * self.page_bytes;
        !self.records.is_empty() && address.wrapping_sub(self.start) < bytes
    }

    /// The record of the page that `address` lies in, or of the page next to it.
    pub fn record(&self, address: u64) -> Option<&Record> {
        let page = address.checked_sub(self.start)? / self.page_bytes.max(1);
        // A guard is after its block more often than before it.
        let before = usize::try_from(page / 2).ok()?.checked_sub(usize::from(page.is_multiple_of(2)));
        let of = |index: Option<usize>| self.records.get(index?).filter(|record| record.state != 0);
        of(before).or_else(|| of(usize::try_from(page / 2).ok()))
    }
}

/// Reads the pool of the heap that `place` leads to.
pub fn read(reader: &mut Reader<'_>, place: &Place) -> Result<Pool, Unreadable> {
    let at = place.heap.wrapping_add(place.offsets.heap_guards);
    let mut word = |index: usize| -> Result<u64, Unreadable> {
        Ok(unless_torn(reader.word(at.wrapping_add(8 * index as u64)))?.unwrap_or(0))
    };
    let (start, page_bytes) = (word(0)?, word(1)?);
    if !(4096..=1 << 16).contains(&page_bytes)
        || !start.is_multiple_of(4096)
        || start == 0
        || start.checked_add(1 << 32).is_none()
    {
        return Ok(Pool::default());
    }
    let mut records = Vec::with_capacity(PLACES);
    for index in 0..PLACES {
        let mut words = [0; RECORD_WORDS];
        for (offset, out) in words.iter_mut().enumerate() {
            *out = word(POOL_WORDS + index * RECORD_WORDS + offset)?;
        }
        records.push(Record::from_words(&words));
    }
    Ok(Pool { start, page_bytes, records })
}
