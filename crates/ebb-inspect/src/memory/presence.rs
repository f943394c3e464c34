//! Which pages of a range are present: one bit a page where one is, and counts of bytes by it.

use super::{Memory, Page, Unreadable};
use crate::exact::usize_of;

/// Pages of a block of bits: 16 MiB of addresses, of pages of 4 KiB.
const BLOCK_PAGES: u64 = 4096;
const BLOCK_WORDS: usize = 64;

/// Which pages of one range of addresses are present, as of one time.
#[derive(Clone, Debug)]
pub struct Presence {
    start: u64,
    pages: u64,
    page_shift: u32,
    /// The bits of each block of pages, as a place in `bits`, counted in blocks. The first place has no bit set, and is that of all
    /// blocks without a present page.
    blocks: Vec<u32>,
    bits: Vec<[u64; BLOCK_WORDS]>,
    swapped: u64,
}

impl Presence {
    /// Looks at the pages that `start..end` touches.
    pub fn read(memory: &dyn Memory, start: u64, end: u64) -> Result<Self, Unreadable> {
        let page_bytes = memory.page_bytes();
        let page_shift = page_bytes.trailing_zeros();
        let start = start & !(page_bytes - 1);
        let pages = end.saturating_sub(start).div_ceil(page_bytes);
        let mut presence = Self {
            start,
            pages,
            page_shift,
            blocks: vec![0; usize_of(pages.div_ceil(BLOCK_PAGES))],
            bits: vec![[0; BLOCK_WORDS]],
            swapped: 0,
        };
        let end = start.saturating_add(pages << page_shift);
        memory.resident(start, end, &mut |from, to, state| {
            // Runs of a kernel's huge pages may be longer than what was asked for.
            let (from, to) = (from.max(start), to.min(end));
            let first = (from - start) >> page_shift;
            let past = first + (to.saturating_sub(from) >> page_shift);
            match state {
                Page::Present => presence.set(first, past),
                Page::Swapped => presence.swapped += past - first,
                Page::Absent => {}
            }
        })?;
        Ok(presence)
    }

    fn set(&mut self, first: u64, past: u64) {
        let mut page = first;
        while page < past {
            let block = &mut self.blocks[usize_of(page / BLOCK_PAGES)];
            if *block == 0 {
                *block = u32::try_from(self.bits.len()).expect("2^32 blocks of bits are 2 TiB");
                self.bits.push([0; BLOCK_WORDS]);
            }
            let bits = &mut self.bits[*block as usize];
            let end = past.min((page / BLOCK_PAGES + 1) * BLOCK_PAGES);
            while page < end {
                let to = end.min((page / 64 + 1) * 64);
                bits[usize_of(page / 64) % BLOCK_WORDS] |= mask(page, to);
                page = to;
            }
        }
    }

    fn word(&self, page: u64) -> u64 {
        self.bits[self.blocks[usize_of(page / BLOCK_PAGES)] as usize][usize_of(page / 64) % BLOCK_WORDS]
    }

    /// The first address that is covered.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The first address after what is covered.
    pub fn end(&self) -> u64 {
        self.start + (self.pages << self.page_shift)
    }

    /// Bytes of pages in swap.
    pub fn swapped_bytes(&self) -> u64 {
        self.swapped << self.page_shift
    }

    /// Whether the page of `address` is present. What is not covered is not.
    pub fn is_present(&self, address: u64) -> bool {
        let Some(page) = address.checked_sub(self.start).map(|at| at >> self.page_shift) else {
            return false;
        };
        page < self.pages && self.word(page) >> (page % 64) & 1 != 0
    }

    /// How many bytes of `from..to` lie on present pages.
    pub fn bytes(&self, from: u64, to: u64) -> u64 {
        let (from, to) = (from.max(self.start), to.min(self.end()));
        if from >= to {
            return 0;
        }
        let (from, to) = (from - self.start, to - self.start);
        let (first, last) = (from >> self.page_shift, (to - 1) >> self.page_shift);
        let is_present = |page: u64| self.word(page) >> (page % 64) & 1;
        if first == last {
            return (to - from) * is_present(first);
        }
        let page = 1 << self.page_shift;
        let head = page - (from & (page - 1));
        let tail = to - (last << self.page_shift);
        head * is_present(first) + (self.count(first + 1, last) << self.page_shift) + tail * is_present(last)
    }

    fn count(&self, first: u64, last: u64) -> u64 {
        let mut count = 0;
        let mut page = first;
        while page < last {
            let to = if self.is_empty_block(page) {
                (page / BLOCK_PAGES + 1) * BLOCK_PAGES
            } else {
                let to = last.min((page / 64 + 1) * 64);
                count += u64::from((self.word(page) & mask(page, to)).count_ones());
                to
            };
            page = to;
        }
        count
    }

    fn is_empty_block(&self, page: u64) -> bool {
        self.blocks[usize_of(page / BLOCK_PAGES)] == 0
    }

    /// The runs of present pages within `from..to`, both of which are pages' first bytes.
    pub fn runs(&self, from: u64, to: u64) -> Vec<(u64, usize)> {
        let mut runs: Vec<(u64, usize)> = Vec::new();
        let page_bytes = 1usize << self.page_shift;
        let (from, to) = (from.max(self.start), to.min(self.end()));
        let number = |at: u64| at.saturating_sub(self.start) >> self.page_shift;
        let (mut page, last) = (number(from), number(to));
        while page < last {
            if self.is_empty_block(page) {
                page = (page / BLOCK_PAGES + 1) * BLOCK_PAGES;
                continue;
            }
            let at = self.start + (page << self.page_shift);
            if self.is_present(at) {
                match runs.last_mut() {
                    Some((start, len)) if *start + *len as u64 == at => *len += page_bytes,
                    _ => runs.push((at, page_bytes)),
                }
            }
            page += 1;
        }
        runs
    }
}

/// The bits of the pages `first..past`, all of them of one word.
fn mask(first: u64, past: u64) -> u64 {
    u64::MAX << (first % 64) & u64::MAX >> (63 - (past - 1) % 64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fake::FakeMemory;
    use super::*;

    const PAGE: u64 = 4096;

    proptest! {
        #[test]
        fn bytes_are_counted_as_one_by_one(
            states in prop::collection::vec(prop::bool::ANY, 1..300),
            from in 0u64..300 * PAGE,
            len in 0u64..300 * PAGE,
        ) {
            let start = 16 * PAGE;
            let mut memory = FakeMemory::new();
            for (page, present) in (0u64..).zip(&states) {
                if *present {
                    memory.write(start + page * PAGE, &[1]);
                }
            }
            let end = start + states.len() as u64 * PAGE;
            let presence = Presence::read(&memory, start, end).unwrap();
            let (from, to) = (start + from, start + from + len);
            let expected: u64 = (0u64..)
                .zip(&states)
                .filter(|(_, present)| **present)
                .map(|(page, _)| {
                    let first = (start + page * PAGE).max(from);
                    let last = (start + (page + 1) * PAGE).min(to);
                    last.saturating_sub(first)
                })
                .sum();
            prop_assert_eq!(presence.bytes(from, to), expected);
            let runs: u64 = presence.runs(start, end).iter().map(|run| run.1 as u64).sum();
            prop_assert_eq!(runs, presence.bytes(start, end));
        }
    }
}
