//! Runs are found where they are, and only there.

use super::*;
use crate::size::{CLASSES, SMALL_MAX};

#[test]
fn runs_begin_where_as_many_ones_follow() {
    assert_eq!(starts_of_runs(0b0111_0110, 1), 0b0111_0110);
    assert_eq!(starts_of_runs(0b0111_0110, 2), 0b0011_0010);
    assert_eq!(starts_of_runs(0b0111_0110, 3), 0b0001_0000);
    assert_eq!(starts_of_runs(0b0111_0110, 4), 0);
    for ones in 1..=SLOTS_MAX as u32 {
        assert_eq!(starts_of_runs(u64::MAX, ones), mask(0, 65 - ones));
        assert_eq!(starts_of_runs(mask(7, ones), ones), 1 << 7);
        assert_eq!(starts_of_runs(mask(7, ones - 1), ones), 0);
    }
}

#[test]
fn a_run_is_as_long_as_the_block_and_aligned_as_its_class() {
    let mut pairs = 0;
    for borrower in 1..=CLASSES {
        for lender in 1..borrower {
            let Some(run) = Run::of(lender, borrower) else {
                continue;
            };
            let (slot, block) = (CLASS[lender].size, CLASS[borrower].size);
            assert_eq!(run.slots * slot, block);
            assert!(run.slots >= 2 && run.slots as usize <= SLOTS_MAX);
            assert!((block as usize).is_multiple_of(run.align) && run.align < SMALL_MAX * 2);
            // Slabs of lenders are one granule: `place_in_lender` builds on it.
            assert_eq!(CLASS[lender].granules, 1);
            pairs += 1;
        }
    }
    assert!(pairs > 0);
}
