//! Which pages of a range are present: one bit a page, and counts of bytes by it.

use super::{Memory, Page, Unreadable};

/// Pages asked about in one call.
const PAGES_A_CALL: usize = 8192;

/// Which pages of one range of addresses are present, as of one time.
#[derive(Clone, Debug)]
pub struct Presence {
    start: u64,
    pages: u64,
    page_shift: u32,
    present: Vec<u64>,
    swapped: u64,
}

impl Presence {
    /// Looks at the pages that `start..end` touches.
    pub fn read(memory: &impl Memory, start: u64, end: u64) -> Result<Self, Unreadable> {
        let page_bytes = memory.page_bytes();
        let page_shift = page_bytes.trailing_zeros();
        let start = start & !(page_bytes - 1);
        let pages = end.saturating_sub(start).div_ceil(page_bytes);
        let mut presence = Self {
            start,
            pages,
            page_shift,
            present: vec![0; pages.div_ceil(64) as usize],
            swapped: 0,
        };
        let mut buffer = vec![Page::Absent; PAGES_A_CALL.min(pages as usize)];
        let mut done = 0;
        while done < pages {
            let part = &mut buffer[..PAGES_A_CALL.min((pages - done) as usize)];
            memory.pages(start + (done << page_shift), part)?;
            for (page, state) in (done..).zip(part.iter()) {
                presence.present[(page / 64) as usize] |=
                    u64::from(*state == Page::Present) << (page % 64);
                presence.swapped += u64::from(*state == Page::Swapped);
            }
            done += part.len() as u64;
        }
        Ok(presence)
    }

    /// The first address that is covered.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The first address behind what is covered.
    pub fn end(&self) -> u64 {
        self.start + (self.pages << self.page_shift)
    }

    /// Bytes of pages in swap.
    pub fn swapped_bytes(&self) -> u64 {
        self.swapped << self.page_shift
    }

    /// Whether the page of `address` is present. What is not covered is not.
    pub fn is_present(&self, address: u64) -> bool {
        let Some(page) = address
            .checked_sub(self.start)
            .map(|at| at >> self.page_shift)
        else {
            return false;
        };
        page < self.pages && self.present[(page / 64) as usize] >> (page % 64) & 1 != 0
    }

    /// How many bytes of `from..to` lie on present pages.
    pub fn bytes(&self, from: u64, to: u64) -> u64 {
        let (from, to) = (from.max(self.start), to.min(self.end()));
        if from >= to {
            return 0;
        }
        let (from, to) = (from - self.start, to - self.start);
        let (first, last) = (from >> self.page_shift, (to - 1) >> self.page_shift);
        let is_present = |page: u64| self.present[(page / 64) as usize] >> (page % 64) & 1;
        if first == last {
            return (to - from) * is_present(first);
        }
        let page = 1 << self.page_shift;
        let head = page - (from & (page - 1));
        let tail = to - (last << self.page_shift);
        head * is_present(first)
            + (self.count(first + 1, last) << self.page_shift)
            + tail * is_present(last)
    }

    /// Present pages of the pages `first..last`.
    fn count(&self, first: u64, last: u64) -> u64 {
        if first >= last {
            return 0;
        }
        let (head, tail) = ((first / 64) as usize, ((last - 1) / 64) as usize);
        let from = u64::MAX << (first % 64);
        let to = u64::MAX >> (63 - (last - 1) % 64);
        if head == tail {
            return u64::from((self.present[head] & from & to).count_ones());
        }
        let between: u32 = self.present[head + 1..tail]
            .iter()
            .map(|word| word.count_ones())
            .sum();
        u64::from((self.present[head] & from).count_ones())
            + u64::from(between)
            + u64::from((self.present[tail] & to).count_ones())
    }

    /// The runs of present pages within `from..to`, both of which are pages' first bytes.
    pub fn runs(&self, from: u64, to: u64) -> Vec<(u64, usize)> {
        let mut runs: Vec<(u64, usize)> = Vec::new();
        let page_bytes = 1usize << self.page_shift;
        let mut at = from;
        while at < to {
            if self.is_present(at) {
                match runs.last_mut() {
                    Some((start, len)) if *start + *len as u64 == at => *len += page_bytes,
                    _ => runs.push((at, page_bytes)),
                }
            }
            at += page_bytes as u64;
        }
        runs
    }
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
