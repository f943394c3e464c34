//! Slabs with a lead, as CPython's objects get them.

use super::{allocate, free, validate, with_access};
use crate::heap::Heap;
use crate::os::fake::Fake;
use crate::size::{CLASS, CLASSES, LEAD, LEAD_MAX, class_of, leads};

#[test]
fn slots_end_where_cache_lines_do() {
    let heap = Heap::new(Fake::new(4096));
    heap.lead_slabs();
    let thread = heap.attach();
    for class in 1..=CLASSES {
        let size = CLASS[class].size as usize;
        let blocks: Vec<_> = (0..3).map(|_| allocate(&heap, thread, size)).collect();
        for &block in &blocks {
            let place = block as usize % 64;
            match leads(class) {
                true => assert_eq!((place + size - LEAD) % 32, 0, "{size} bytes at {place}"),
                false => assert_eq!(place % (1 << size.trailing_zeros().min(6)), 0, "{size} bytes at {place}"),
            }
            // SAFETY: live.
            assert_eq!(unsafe { heap.usable_size(block) }, size);
        }
        blocks.into_iter().for_each(|block| free(&heap, thread, block));
    }
    assert!(leads(class_of(64)) && leads(class_of(192)) && leads(class_of(LEAD_MAX)));
    validate(&heap);
}

#[test]
fn aligned_blocks_are_aligned_whatever_lies_in_the_caches() {
    let heap = Heap::new(Fake::new(4096));
    let thread = heap.attach();
    for turn in 0..2 {
        for size in (1..1100).step_by(13) {
            // Leaves a slot of the class in the cache.
            let plain = allocate(&heap, thread, size);
            free(&heap, thread, plain);
            for align in [16, 32, 64, 128, 512, 1024] {
                let block = with_access(thread, |access| heap.allocate_aligned(access, size, align));
                assert!((block as usize).is_multiple_of(align), "{size} bytes aligned to {align}, turn {turn}");
                // SAFETY: live.
                let usable = unsafe { heap.usable_size(block) };
                assert!(usable >= size && usable == heap.usable_of_request(size, align));
                assert!(turn == 0 || usable < 2 * size.max(align), "{usable} bytes for {size} aligned to {align}");
                free(&heap, thread, block);
            }
        }
        heap.lead_slabs();
    }
    validate(&heap);
}

#[test]
fn a_slab_is_filled_to_its_last_slot_and_goes_whole() {
    let heap = Heap::new(Fake::new(4096));
    heap.lead_slabs();
    let thread = heap.attach();
    for class in (1..=class_of(LEAD_MAX)).filter(|&class| leads(class)) {
        let size = CLASS[class].size as usize;
        let blocks: Vec<_> = (0..3 * CLASS[class].slots).map(|_| allocate(&heap, thread, size)).collect();
        for &block in &blocks {
            // SAFETY: live, and as long as its class says.
            unsafe { block.write_bytes(0xa5, size) };
        }
        validate(&heap);
        blocks.into_iter().for_each(|block| free(&heap, thread, block));
    }
    with_access(thread, |access| match access {
        crate::heap::Access::Cached(own) => heap.trim(Some(own)),
        _ => unreachable!(),
    });
    assert_eq!(validate(&heap), 0, "slabs are left");
    assert_eq!(heap.statistics(None, true).resident, 0);
}

#[test]
fn a_signal_handler_that_finds_the_bin_taken_gets_aligned_blocks_too() {
    for leads in [false, true] {
        let heap = Heap::new(Fake::new(4096));
        if leads {
            heap.lead_slabs();
        }
        let locks = || (0..heap.shards()).map(|it| heap.parts.bins.get(it, class_of(64)).raw());
        locks().for_each(|lock| lock.freeze(&heap.os));
        for _ in 0..5 {
            let block = heap.allocate_aligned(crate::heap::Access::Nested, 64, 64);
            assert!(!block.is_null() && (block as usize).is_multiple_of(64), "{block:?}");
        }
        // SAFETY: frozen above, by this thread.
        locks().for_each(|lock| unsafe { lock.thaw(&heap.os) });
    }
}
