//! Where small blocks go, and what a cache keeps, so that survivors lie together; holes that one phase leaves serve the
//! next one, whose sizes are others; and nothing is written into free memory.

use super::*;
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
            let mass: Vec<_> = (0..4 * class.cache_slots + 8).map(|_| allocate(&heap, thread, size)).collect();
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

/// Blocks of a first phase: enough for a few slabs.
const BLOCKS: usize = 4 * 4096;
const SMALL: usize = 16;
const LARGER: usize = 64;

/// A heap after a phase of 16-byte blocks of which one in 32 stayed: the survivors.
fn after_a_phase(heap: &Heap<Fake>, thread: Thread) -> Vec<*mut u8> {
    let blocks: Vec<_> = (0..BLOCKS).map(|_| allocate(heap, thread, SMALL)).collect();
    for (index, &block) in blocks.iter().enumerate() {
        // SAFETY: live.
        unsafe { block.write_bytes(0xa5, SMALL) };
        if index % 32 != 0 {
            free(heap, thread, block);
        }
    }
    blocks.into_iter().step_by(32).collect()
}

fn slabs_of(heap: &Heap<Fake>, size: usize) -> usize {
    heap.parts.bins.get(0, class_of(size)).lock(&heap.os).slabs
}

#[test]
fn the_next_phase_lives_in_the_holes_of_the_last() {
    let heap = Heap::new(Fake::new(4096));
    let thread = heap.attach();
    let stayed = after_a_phase(&heap, thread);
    let resident = heap.statistics(None, true).resident;
    let lent: Vec<_> = (0..1000).map(|_| allocate(&heap, thread, LARGER)).collect();
    assert_eq!(slabs_of(&heap, LARGER), 0);
    assert_eq!(heap.statistics(None, true).resident, resident);
    for &block in &lent {
        assert_eq!(heap.quick_class(block as usize), Some(0));
        // SAFETY: live.
        unsafe {
            assert_eq!(heap.usable_size(block), LARGER);
            block.write_bytes(0x5a, LARGER);
        }
        assert!((block as usize).is_multiple_of(LARGER));
    }
    validate(&heap);
    // What stayed is as it was, and its slow free finds it.
    for &block in &stayed {
        // SAFETY: live until the last line, then not used.
        unsafe {
            assert!((0..SMALL).all(|at| block.add(at).read() == 0xa5));
            assert_eq!(heap.usable_size(block), SMALL);
            free(&heap, thread, block);
        }
    }
    for block in lent {
        // SAFETY: live, grows and moves, and is not used after the free.
        unsafe {
            let grown = with_access(thread, |access| heap.reallocate(access, block, 3 * LARGER));
            assert!((0..LARGER).all(|at| grown.add(at).read() == 0x5a));
            free(&heap, thread, grown);
        }
    }
    with_access(thread, |access| match access {
        Access::Cached(own) => heap.trim(Some(own)),
        _ => unreachable!(),
    });
    validate(&heap);
    let statistics = heap.statistics(None, true);
    assert_eq!((statistics.live, statistics.cached), (0, 0));
    assert_eq!(statistics.resident, 0);
}

#[test]
fn the_quick_way_is_open_again_when_the_last_lent_block_is_back() {
    let heap = Heap::new(Fake::new(4096));
    let thread = heap.attach();
    let stayed = after_a_phase(&heap, thread);
    let lent: Vec<_> = (0..100).map(|_| allocate(&heap, thread, LARGER)).collect();
    let lender = lent[0] as usize & !0xffff;
    let survivor = stayed.iter().find(|&&block| block as usize & !0xffff == lender);
    let survivor = *survivor.expect("survivors are everywhere") as usize;
    assert_eq!(heap.quick_class(survivor), Some(0));
    free_all(&heap, thread, &lent);
    with_access(thread, |access| match access {
        // The cache holds what was lent and not yet handed out.
        Access::Cached(own) => heap.trim(Some(own)),
        _ => unreachable!(),
    });
    assert_eq!(heap.quick_class(survivor), Some(class_of(SMALL)));
    validate(&heap);
}

#[test]
fn aligned_requests_are_aligned_in_lent_slots_too() {
    for size in [32, 64, 128, 256] {
        let heap = Heap::new(Fake::new(4096));
        let thread = heap.attach();
        after_a_phase(&heap, thread);
        for _ in 0..50 {
            let block = with_access(thread, |access| heap.allocate_aligned(access, size, size));
            assert!((block as usize).is_multiple_of(size));
        }
        assert_eq!(CLASS[class_of(size)].size as usize, size);
        assert_eq!(slabs_of(&heap, size), 0, "nothing lent for {size} bytes");
        validate(&heap);
    }
}

/// A flush finds each slot's slab, though a lender's slab is smaller than the ones next to it.
#[test]
fn lent_blocks_and_slots_of_the_class_are_flushed_together() {
    let (small, larger) = (CLASS[class_of(512)], CLASS[class_of(4096)]);
    assert!(small.granules < larger.granules);
    let heap = Heap::new(Fake::new(4096));
    let thread = heap.attach();
    let direct = |size| heap.allocate(Access::Direct, size);
    // One slab of each, one after the other; the first is emptied but for a slot, the other full.
    let blocks: Vec<_> = (0..small.slots).map(|_| direct(512)).collect();
    let own: Vec<_> = (0..larger.slots).map(|_| direct(4096)).collect();
    for &block in &blocks[1..] {
        // SAFETY: live, and not used again.
        unsafe { heap.free(Access::Direct, block) };
    }
    // The cache keeps the rest of what it borrowed, then slots of the full slab, and flushes both.
    let lent = allocate(&heap, thread, 4096);
    assert_eq!(heap.quick_class(lent as usize), Some(0));
    free_all(&heap, thread, &own);
    validate(&heap);
}

#[test]
fn a_signal_handler_that_frees_a_lent_block_waits_for_no_lock() {
    let heap = Heap::new(Fake::new(4096));
    let thread = heap.attach();
    after_a_phase(&heap, thread);
    let lent = allocate(&heap, thread, LARGER);
    let held = heap.parts.bins.get(0, class_of(SMALL)).lock(&heap.os);
    // SAFETY: live, and not used again.
    unsafe { heap.free(Access::Nested, lent) };
    drop(held);
    let before = heap.statistics(None, true).live;
    with_access(thread, |access| heap.free_pending(access));
    assert_eq!(heap.statistics(None, true).live, before - LARGER);
    validate(&heap);
}

const PAGE: usize = 4096;
const WRITTEN: u8 = 0x5a;

/// Whether all bytes of a page are `value`.
fn is_full_of(page: *mut u8, value: u8) -> bool {
    // SAFETY: the page is the fake kernel's memory, which stays mapped until the heap is dropped.
    unsafe { core::slice::from_raw_parts(page, PAGE) }.iter().all(|&byte| byte == value)
}

#[test]
fn freed_memory_keeps_its_bytes_until_its_page_goes() {
    for cached in [false, true] {
        let heap = Box::new(Heap::new(Fake::new(PAGE)));
        let thread = if cached { heap.attach() } else { None };
        let mut blocks: Vec<_> = [(PAGE, 40), (3 * PAGE, 40), (2 * GRANULE, 4)]
            .iter()
            .flat_map(|&(size, count)| core::iter::repeat_n(size, count))
            .map(|size| (allocate(&heap, thread, size), size))
            .collect();
        for &(block, size) in &blocks {
            // SAFETY: the block is live and as long as was asked for.
            unsafe { block.write_bytes(WRITTEN, size) };
        }
        // One of each size stays, so that its slab does.
        for kept in [80, 40, 0] {
            blocks.remove(kept);
        }
        let pages: Vec<_> = blocks
            .iter()
            .flat_map(|&(block, size)| (0..size / PAGE).map(move |page| block.wrapping_add(page * PAGE)))
            .collect();
        let starts: Vec<_> = blocks.iter().map(|&(block, _)| block).collect();
        free_all(&heap, thread, &starts);
        assert!(pages.iter().all(|&page| is_full_of(page, WRITTEN)));
        for _ in 0..6 {
            heap.tick(None);
            let gone = |&page: &*mut u8| is_full_of(page, 0);
            assert!(pages.iter().all(|page| gone(page) || is_full_of(*page, WRITTEN)));
        }
        assert!(pages.iter().all(|&page| is_full_of(page, 0)), "cached: {cached}");
    }
}
