//! Blocks that grow: where they go, by what way, and what remains.

use super::*;
use crate::os::OsError;
use crate::os::fake::Call;
use crate::size::GRANULE;

const PAGE: usize = 4096;

fn heap() -> Box<Heap<Fake>> {
    Box::new(Heap::new(Fake::new(PAGE)))
}

fn grow(heap: &Heap<Fake>, block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the tests use the result alone.
    let grown = with_access(None, |access| unsafe { heap.reallocate(access, block, size) });
    validate(heap);
    grown
}

fn fill(block: *mut u8, bytes: usize) {
    // SAFETY: the block is live and as long.
    unsafe { block.write_bytes(7, bytes) };
}

fn expect_filled(block: *mut u8, bytes: usize) {
    // SAFETY: the block is live and as long.
    let bytes = unsafe { core::slice::from_raw_parts(block, bytes) };
    assert!(bytes.iter().all(|&byte| byte == 7));
}

#[test]
fn moved_pages_leave_a_clean_extent_but_for_the_tail() {
    let heap = heap();
    let old = allocate(&heap, None, 40 * GRANULE);
    free(&heap, None, old);
    // In the dirty extent, with a tail; the rest of it is allocated.
    let bytes = 10 * GRANULE + PAGE;
    let block = allocate(&heap, None, bytes);
    assert_eq!(block, old);
    let rest = allocate(&heap, None, 29 * GRANULE);
    assert_eq!(rest as usize, old as usize + 11 * GRANULE);
    fill(block, bytes);
    let grown = grow(&heap, block, 20 * GRANULE);
    assert_ne!(grown, block);
    expect_filled(grown, bytes);
    assert_eq!(heap.statistics(None, true).idle, GRANULE);
    // The next growth has room.
    assert_eq!(grow(&heap, grown, 40 * GRANULE), grown);
    expect_filled(grown, bytes);
}

#[test]
fn a_short_block_moves_to_pages_that_are_there() {
    let heap = heap();
    let idle = allocate(&heap, None, 100 * GRANULE);
    let between = allocate(&heap, None, GRANULE);
    let block = allocate(&heap, None, 2 * GRANULE);
    let behind = allocate(&heap, None, GRANULE);
    free(&heap, None, idle);
    fill(block, 2 * GRANULE);
    let grown = grow(&heap, block, 3 * GRANULE);
    assert_eq!(grown, idle);
    expect_filled(grown, 2 * GRANULE);
    for block in [between, behind, grown] {
        free(&heap, None, block);
    }
    validate(&heap);
}

#[test]
fn a_region_whose_memory_was_refused_hides_no_later_one() {
    let heap = heap();
    heap.os.set_address_space_limit(Some(1 << 30));
    assert!(!heap.allocate(Access::Direct, 8 << 20).is_null());
    let reserved = heap.os.record().reserved_bytes;
    // More than is left of the first region.
    heap.os.fail(Call::Commit, 0, 100, OsError::OutOfMemory);
    assert!(heap.allocate(Access::Direct, 200 << 20).is_null());
    assert_eq!(heap.os.record().reserved_bytes, reserved);
    heap.os.heal();
    let block = heap.allocate(Access::Direct, 200 << 20);
    assert!(!block.is_null());
    // SAFETY: a live block of this heap.
    unsafe {
        assert_eq!(heap.usable_size(block), 200 << 20);
        heap.free(Access::Direct, block);
    }
    heap.arena.lock(&heap.os).validate();
}
