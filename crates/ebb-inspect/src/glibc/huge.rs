//! Huge pages that malloc asks the kernel for: `glibc.malloc.hugetlb=1`, which 2.43 has by default on aarch64.
//!
//! malloc then rounds what it takes from the kernel up to huge pages. The first touch of each makes all of it resident, so
//! that memory can be resident and free which was never used.

use crate::heap::HugePages;
use crate::target::HugePagesOf;

/// An arena, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arena {
    /// The ranges of its heaps.
    pub heaps: Vec<(u64, u64)>,
    /// Resident free bytes in them.
    pub free: u64,
}

/// What the arenas have in huge pages; `None` where neither malloc nor the kernel put any there. Which free bytes lie in huge
/// pages is not known, so it is the most that can.
pub fn of(arenas: &[Arena], mappings: &[HugePagesOf]) -> Option<HugePages> {
    let (mut found, mut is_there) = (HugePages::default(), false);
    for arena in arenas {
        let is_its = |it: &&HugePagesOf| arena.heaps.iter().any(|(start, end)| it.start < *end && *start < it.end);
        let its: Vec<_> = mappings.iter().filter(is_its).collect();
        let resident: u64 = its.iter().map(|it| it.resident).sum();
        is_there |= !its.is_empty();
        found.resident += resident;
        found.free += resident.min(arena.free);
    }
    is_there.then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn mapping(start: u64, resident: u64, advised: bool) -> HugePagesOf {
        HugePagesOf { start: start * MB, end: (start + 64) * MB, resident: resident * MB, advised }
    }

    fn arena(start: u64, free: u64) -> Arena {
        Arena { heaps: vec![(start * MB, (start + 32) * MB)], free: free * MB }
    }

    #[test]
    fn the_free_part_is_bounded_arena_by_arena() {
        let arenas = [arena(0, 10), arena(64, 30), arena(128, 5)];
        let mappings = [mapping(0, 40, true), mapping(64, 20, true), mapping(1024, 500, true)];
        let found = of(&arenas, &mappings);
        assert_eq!(found, Some(HugePages { resident: 60 * MB, free: 30 * MB }));
    }

    #[test]
    fn pages_that_are_asked_for_and_not_there_are_named_and_no_others() {
        let of_one = |mappings: &[HugePagesOf]| of(&[arena(0, 10)], mappings);
        assert_eq!(of_one(&[mapping(0, 0, true)]), Some(HugePages::default()));
        assert_eq!(of_one(&[mapping(640, 2, true)]), None);
        assert_eq!(of_one(&[]), None);
    }
}
