//! Holes that one phase leaves serve the next one, whose sizes are others; nothing is lost by it.

use super::{Thread, allocate, free, validate, with_access};
use crate::heap::{Access, Heap};
use crate::os::fake::Fake;
use crate::size::{CLASS, class_of};

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
            // SAFETY: live, and not used again.
            unsafe { free(heap, thread, block) };
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
    for block in lent {
        // SAFETY: live, and not used again.
        unsafe { free(&heap, thread, block) };
    }
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

/// A flush finds each slot's slab, though a lender's slab is smaller than the ones beside it.
#[test]
fn lent_blocks_and_slots_of_the_class_are_flushed_together() {
    let (small, larger) = (CLASS[class_of(512)], CLASS[class_of(4096)]);
    assert!(small.granules < larger.granules);
    let heap = Heap::new(Fake::new(4096));
    let thread = heap.attach();
    let direct = |size| heap.allocate(Access::Direct, size);
    // One slab of each, one behind the other; the first is emptied but for a slot, the other full.
    let blocks: Vec<_> = (0..small.slots).map(|_| direct(512)).collect();
    let own: Vec<_> = (0..larger.slots).map(|_| direct(4096)).collect();
    for &block in &blocks[1..] {
        // SAFETY: live, and not used again.
        unsafe { heap.free(Access::Direct, block) };
    }
    // The cache keeps the rest of what it borrowed, then slots of the full slab, and flushes both.
    let lent = allocate(&heap, thread, 4096);
    assert_eq!(heap.quick_class(lent as usize), Some(0));
    for block in own {
        // SAFETY: live, and not used again.
        unsafe { free(&heap, thread, block) };
    }
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
