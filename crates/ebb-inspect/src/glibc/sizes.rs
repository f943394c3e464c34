//! How many chunks of which size are in use.

use std::collections::BTreeMap;

use crate::exact::{low_half, usize_of};
use crate::heap::Class;

/// Sizes up to this are counted in steps of 16 bytes.
const FINE_BYTES: u64 = 1024;
const STEP: u64 = 16;
const FINE: usize = usize_of(FINE_BYTES / STEP) + 1;
/// Above it, in four steps for each doubling.
const STEPS_A_DOUBLING: u64 = 4;
const COARSE: usize = (64 - FINE_BYTES.trailing_zeros() as usize) * usize_of(STEPS_A_DOUBLING);

/// Counts of chunks and their bytes by size.
#[derive(Clone, Debug)]
pub struct Sizes(Vec<(u64, u64)>);

impl Default for Sizes {
    fn default() -> Self {
        Self(vec![(0, 0); FINE + COARSE])
    }
}

impl Sizes {
    /// Counts a chunk of `bytes`.
    pub fn count(&mut self, bytes: u64) {
        let (chunks, sum) = &mut self.0[index(bytes)];
        *chunks += 1;
        *sum += bytes;
    }

    /// Takes a chunk of `bytes` out again.
    pub fn uncount(&mut self, bytes: u64) {
        let (chunks, sum) = &mut self.0[index(bytes)];
        *chunks = chunks.saturating_sub(1);
        *sum = sum.saturating_sub(bytes);
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        for ((chunks, bytes), (more_chunks, more_bytes)) in self.0.iter_mut().zip(&other.0) {
            *chunks += more_chunks;
            *bytes += more_bytes;
        }
    }

    /// The ranges that have a chunk, by the largest size in each, headers included.
    pub fn counts(&self) -> BTreeMap<u64, Class> {
        let ranges = self.0.iter().enumerate();
        let used = ranges.filter(|(_, (chunks, _))| *chunks > 0);
        used.map(|(index, &(count, bytes))| (largest(index), Class { count, bytes })).collect()
    }
}

fn index(bytes: u64) -> usize {
    if bytes <= FINE_BYTES {
        return usize_of(bytes.div_ceil(STEP));
    }
    // In the doubling that ends at 2^(n+1), n the exponent of the last byte's number.
    let last = bytes - 1;
    let exponent = last.ilog2();
    let step = (last - (1 << exponent)) >> (exponent - 2);
    let doubling = u64::from(exponent - FINE_BYTES.ilog2());
    FINE + usize_of(doubling * STEPS_A_DOUBLING + step)
}

fn largest(index: usize) -> u64 {
    if index < FINE {
        return index as u64 * STEP;
    }
    let at = (index - FINE) as u64;
    let exponent = FINE_BYTES.ilog2() + low_half(at / STEPS_A_DOUBLING);
    let step = 1u64 << (exponent - 2);
    (1u64 << exponent).saturating_add((at % STEPS_A_DOUBLING + 1).saturating_mul(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_counted_in_the_smallest_range_that_holds_it() {
        let sizes = (1..=8192).chain((14..63).flat_map(|n| [(1u64 << n) - 1, 1 << n, (1 << n) + 1]));
        for bytes in sizes.chain([u64::MAX]) {
            let at = index(bytes);
            assert!(at < FINE + COARSE, "{bytes}");
            assert!(bytes <= largest(at), "{bytes} in {at}");
            assert!(at == 0 || bytes > largest(at - 1), "{bytes} in {at}");
        }
    }

    #[test]
    fn counts_add_up() {
        let mut sizes = Sizes::default();
        sizes.count(32);
        sizes.count(32);
        let mut more = Sizes::default();
        more.count(100_000);
        sizes.add(&more);
        let counts: Vec<_> = sizes.counts().into_iter().collect();
        assert_eq!(counts.len(), 2);
        assert_eq!(counts[0], (32, Class { count: 2, bytes: 64 }));
        assert_eq!(counts[1].1, Class { count: 1, bytes: 100_000 });
    }
}
