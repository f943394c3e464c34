//! Where small blocks go, and what a cache keeps: so that those that stay lie together.

use super::{allocate, free_all, validate};
use crate::heap::Heap;
use crate::os::fake::Fake;
use crate::size::{CLASS, GRANULE};

#[test]
fn slots_come_from_the_slab_with_the_lowest_address() {
    const SIZE: usize = 1024;
    let heap = Heap::new(Fake::new(4096));
    let mut blocks: Vec<_> = (0..6 * GRANULE / SIZE).map(|_| allocate(&heap, None, SIZE)).collect();
    blocks.sort_unstable();
    let slabs: Vec<&[*mut u8]> = blocks.chunks(GRANULE / SIZE).collect();
    // Few of one, most of another, the highest first: neither how full a slab is nor when it got room counts.
    let mut freed = Vec::new();
    for (number, share) in [(5, 3), (3, 60), (1, 20), (0, 2)] {
        free_all(&heap, None, &slabs[number][..share]);
        freed.extend(&slabs[number][..share]);
        validate(&heap);
    }
    freed.sort_unstable();
    let again: Vec<_> = freed.iter().map(|_| allocate(&heap, None, SIZE)).collect();
    assert_eq!(again, freed);
    validate(&heap);
}

#[test]
fn of_a_mass_that_is_freed_a_cache_keeps_little() {
    for class in &CLASS[1..] {
        let heap = Heap::new(Fake::new(4096));
        let (thread, size) = (heap.attach(), class.size as usize);
        for _ in 0..2 {
            let mass: Vec<_> =
                (0..4 * class.cache_slots + 8).map(|_| allocate(&heap, thread, size)).collect();
            free_all(&heap, thread, &mass);
            let cached = heap.statistics(None, true).cached;
            assert!(cached <= (127 * size).min(64 << 10), "{cached} of {size}");
            validate(&heap);
        }
    }
}

#[test]
fn what_is_used_again_and_again_stays_in_the_cache() {
    let heap = Heap::new(Fake::new(4096));
    let thread = heap.attach();
    let round = |count: usize| {
        let blocks: Vec<_> = (0..count).map(|_| allocate(&heap, thread, 16)).collect();
        free_all(&heap, thread, &blocks);
    };
    // A mass first, which made the stack small.
    round(20_000);
    round(1000);
    round(1000);
    assert!(heap.statistics(None, true).cached >= 1000 * 16);
    let flushes = || heap.parts.bins.get(0, 1).lock(&heap.os).flushes;
    let before = flushes();
    round(1000);
    assert_eq!(flushes(), before);
}
