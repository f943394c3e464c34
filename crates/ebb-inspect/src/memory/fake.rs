//! A process's memory that a test makes up: pages are there once something is written to them. With its mappings, and
//! with the words that a hostile one would have.

use std::collections::BTreeMap;

#[cfg(test)]
use proptest::prelude::*;

use super::{Memory, Page, Unreadable};
use crate::exact::usize_of;
use crate::target::{Backing, Mapping};

const PAGE_BYTES: usize = 4096;

/// Memory that a test fills.
#[derive(Clone, Debug, Default)]
pub struct FakeMemory {
    pages: BTreeMap<u64, Box<[u8]>>,
    swapped: Vec<u64>,
}

impl FakeMemory {
    /// Memory without a page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes `bytes` from `address` on; their pages become present.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            let page = at / PAGE_BYTES as u64 * PAGE_BYTES as u64;
            let page = self.pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES].into());
            page[usize_of(at) % PAGE_BYTES] = *byte;
        }
    }

    /// Writes a word at `address`.
    pub fn write_word(&mut self, address: u64, word: u64) {
        self.write(address, &word.to_ne_bytes());
    }

    /// Writes each of `words` at its address, then takes the pages of `lost` away.
    pub fn corrupt(&mut self, words: &[(u64, u64)], lost: impl IntoIterator<Item = u64>) {
        for &(address, word) in words {
            self.write_word(address, word);
        }
        for address in lost {
            self.discard(address);
        }
    }

    /// Takes the page of `address` away, as MADV_DONTNEED does.
    pub fn discard(&mut self, address: u64) {
        self.pages.remove(&(address / PAGE_BYTES as u64 * PAGE_BYTES as u64));
    }

    /// Moves the page of `address` to swap.
    pub fn swap_out(&mut self, address: u64) {
        self.discard(address);
        self.swapped.push(address / PAGE_BYTES as u64 * PAGE_BYTES as u64);
    }
}

/// A mapping as a heap has it: of the process alone, to read and to write.
pub fn mapping(start: u64, bytes: u64, backing: Backing) -> Mapping {
    Mapping {
        start,
        end: start + bytes,
        readable: true,
        writable: true,
        executable: false,
        shared: false,
        locked: false,
        offset: 0,
        backing,
    }
}

/// Words that do more harm than any: those of `own`, which fit the structures that are written over, single bits, ends
/// of everything.
#[cfg(test)]
pub fn harmful(own: impl Strategy<Value = u64>) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => own,
        1 => any::<u64>(),
        1 => (0u32..64).prop_map(|bit| 1 << bit),
        1 => (0u64..64).prop_map(|less| u64::MAX - less),
    ]
}

impl Memory for FakeMemory {
    fn page_bytes(&self) -> u64 {
        PAGE_BYTES as u64
    }

    fn pages(&self, start: u64, pages: &mut [Page]) -> Result<(), Unreadable> {
        for (index, page) in pages.iter_mut().enumerate() {
            let at = start.saturating_add((index * PAGE_BYTES) as u64);
            *page = if self.pages.contains_key(&at) {
                Page::Present
            } else if self.swapped.contains(&at) {
                Page::Swapped
            } else {
                Page::Absent
            };
        }
        Ok(())
    }

    fn resident(&self, start: u64, end: u64, each: &mut dyn FnMut(u64, u64, Page)) -> Result<(), Unreadable> {
        let page_bytes = self.page_bytes();
        let mut found: BTreeMap<u64, Page> = BTreeMap::new();
        let swapped = self.swapped.iter().filter(|&&at| start <= at && at < end);
        found.extend(swapped.map(|&at| (at, Page::Swapped)));
        let present = self.pages.range(start..end.max(start));
        found.extend(present.map(|(&at, _)| (at, Page::Present)));
        for (at, page) in found {
            each(at, at.saturating_add(page_bytes), page);
        }
        Ok(())
    }

    fn copy(&self, ranges: &[(u64, usize)], out: &mut [u8]) -> Result<(), Unreadable> {
        let addresses = ranges.iter().flat_map(|&(start, len)| start..start + len as u64);
        for (at, byte) in addresses.zip(out) {
            let page = at / PAGE_BYTES as u64 * PAGE_BYTES as u64;
            // A reader that does not ask first is a mistake of the reader.
            let page = self.pages.get(&page).ok_or(Unreadable::Unmapped(at))?;
            *byte = page[usize_of(at) % PAGE_BYTES];
        }
        Ok(())
    }
}
