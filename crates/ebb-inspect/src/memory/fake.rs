//! A process's memory that a test makes up: pages are there once something is written to them.

use std::collections::BTreeMap;

use super::{Memory, Page, Unreadable};

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
            let page = self
                .pages
                .entry(page)
                .or_insert_with(|| vec![0; PAGE_BYTES].into());
            page[at as usize % PAGE_BYTES] = *byte;
        }
    }

    /// Writes a word at `address`.
    pub fn write_word(&mut self, address: u64, word: u64) {
        self.write(address, &word.to_ne_bytes());
    }

    /// Takes the page of `address` away, as MADV_DONTNEED does.
    pub fn discard(&mut self, address: u64) {
        self.pages
            .remove(&(address / PAGE_BYTES as u64 * PAGE_BYTES as u64));
    }

    /// Moves the page of `address` to swap.
    pub fn swap_out(&mut self, address: u64) {
        self.discard(address);
        self.swapped
            .push(address / PAGE_BYTES as u64 * PAGE_BYTES as u64);
    }
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

    fn copy(&self, ranges: &[(u64, usize)], out: &mut [u8]) -> Result<(), Unreadable> {
        let addresses = ranges
            .iter()
            .flat_map(|&(start, len)| start..start + len as u64);
        for (at, byte) in addresses.zip(out) {
            let page = at / PAGE_BYTES as u64 * PAGE_BYTES as u64;
            // A reader that does not ask first is a mistake of the reader.
            let page = self.pages.get(&page).ok_or(Unreadable::Unmapped(at))?;
            *byte = page[at as usize % PAGE_BYTES];
        }
        Ok(())
    }
}
