//! The limit of a cgroup, as the fake kernel tells it: near it idle memory has no time, far from it
//! nothing is looked at but at growth.

use super::*;
use crate::os::{Headroom, OsError, fake::Call};
use crate::size::GRANULE;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn heap() -> Box<Heap<Fake>> {
    let heap = Box::new(Heap::new(Fake::new(PAGE)));
    heap.os.set_cpus(1);
    heap
}

fn left(heap: &Heap<Fake>, limit_mib: usize, left_mib: usize) {
    heap.os.set_headroom(Some(Headroom { limit_bytes: limit_mib * MIB, left_bytes: left_mib * MIB }));
}

/// What process does after a slow operation.
fn after(heap: &Heap<Fake>) -> bool {
    heap.take_growth_step() && heap.look_at_limit() && heap.trim(None)
}

fn allocate_mib(heap: &Heap<Fake>, mib: usize) -> *mut u8 {
    allocate(heap, None, mib * MIB)
}

#[test]
fn growth_is_noticed_at_every_step_and_small_heaps_are_left_alone() {
    let heap = heap();
    allocate_mib(&heap, 3);
    assert!(!heap.take_growth_step());
    allocate_mib(&heap, 1);
    assert!(heap.take_growth_step());
    assert!(!heap.take_growth_step(), "once for each step");
    allocate_mib(&heap, 3);
    assert!(!heap.take_growth_step());
    allocate_mib(&heap, 3);
    assert!(heap.take_growth_step());
}

#[test]
fn memory_that_is_taken_again_after_it_went_back_is_growth() {
    let heap = heap();
    let block = allocate_mib(&heap, 8);
    assert!(heap.take_growth_step());
    free(&heap, None, block);
    // From a dirty extent: the pages are resident.
    let again = allocate_mib(&heap, 8);
    assert_eq!(again, block);
    assert!(!heap.take_growth_step());
    free(&heap, None, again);
    assert!(heap.trim(None));
    allocate_mib(&heap, 8);
    assert!(heap.take_growth_step());
}

#[test]
fn pages_of_slabs_that_are_taken_again_are_growth() {
    let heap = heap();
    let slots: Vec<_> = (0..6 * MIB / PAGE).map(|_| allocate(&heap, None, PAGE / 2)).collect();
    while heap.take_growth_step() {}
    // One slot in each slab stays, so that the slabs do.
    let gone: Vec<_> = slots.iter().copied().filter(|slot| !(*slot as usize).is_multiple_of(GRANULE)).collect();
    free_all(&heap, None, &gone);
    heap.trim(None);
    let fresh = heap.arena.fresh_bytes();
    gone.iter().for_each(|_| {
        allocate(&heap, None, PAGE / 2);
    });
    let taken = heap.arena.fresh_bytes() - fresh;
    assert!(taken >= 2 * MIB, "{taken}");
}

#[test]
fn far_from_the_limit_it_is_looked_at_every_sixteenth_of_what_is_left() {
    let heap = heap();
    left(&heap, 4096, 1600);
    for _ in 0..50 {
        allocate_mib(&heap, 4);
        assert!(!after(&heap));
    }
    // 200 MiB by strides of almost 100.
    assert!((2..=4).contains(&heap.os.headroom_asked()), "{}", heap.os.headroom_asked());
    assert!(!heap.is_near_limit());
}

#[test]
fn without_a_limit_the_kernel_is_hardly_ever_asked() {
    let heap = heap();
    for _ in 0..100 {
        allocate_mib(&heap, 4);
        after(&heap);
    }
    assert!(heap.os.headroom_asked() <= 7, "{}", heap.os.headroom_asked());
}

#[test]
fn near_the_limit_everything_idle_goes_at_once() {
    let heap = heap();
    left(&heap, 256, 200);
    let block = allocate_mib(&heap, 40);
    assert!(!after(&heap));
    free(&heap, None, block);
    left(&heap, 256, 10);
    allocate_mib(&heap, 60);
    assert!(after(&heap));
    let statistics = heap.statistics(None, true);
    assert_eq!(statistics.idle, 0);
    // With some descriptors.
    assert!(statistics.returned >= 40 * MIB as u64);
    assert!(heap.is_near_limit());
}

#[test]
fn what_is_handed_out_counts_before_it_is_touched() {
    let heap = heap();
    left(&heap, 1024, 500);
    let idle = allocate_mib(&heap, 100);
    assert!(!after(&heap));
    free(&heap, None, idle);
    // The kernel has not seen a page of it yet.
    allocate_mib(&heap, 480);
    assert!(after(&heap));
}

#[test]
fn near_the_limit_ticks_give_no_time_and_with_room_they_do_again() {
    let heap = heap();
    left(&heap, 256, 4);
    let [one, two] = [allocate_mib(&heap, 8), allocate_mib(&heap, 8)];
    assert!(!after(&heap), "nothing is idle");
    free(&heap, None, one);
    assert!(heap.tick(None).returned_bytes >= 8 * MIB);
    left(&heap, 256, 200);
    free(&heap, None, two);
    // The purger looks again before its tick.
    heap.refresh_pressure();
    assert!(!heap.is_near_limit());
    assert!(heap.tick(None).returned_bytes < MIB);
    assert!(heap.tick(None).returned_bytes >= 8 * MIB);
}

#[test]
fn passes_near_the_limit_are_made_for_a_reason() {
    let heap = heap();
    left(&heap, 256, 4);
    let grow = || {
        allocate_mib(&heap, 4);
        heap.take_growth_step() && heap.look_at_limit()
    };
    assert!(grow(), "the first");
    assert!(!grow(), "nothing was freed since");
    let block = allocate_mib(&heap, 2);
    free(&heap, None, block);
    assert!(grow());
    heap.trim(None);
    assert!(!grow());
    heap.os.advance_ms(101);
    assert!(grow(), "caches may hold something");
}

#[test]
fn a_failed_mapping_gives_everything_back_and_is_tried_once_more() {
    let heap = heap();
    let thread = heap.attach();
    let idle = allocate(&heap, thread, 20 * MIB);
    let slots: Vec<_> = (0..100).map(|_| allocate(&heap, thread, 100)).collect();
    slots.iter().for_each(|&slot| free(&heap, thread, slot));
    free(&heap, thread, idle);
    // The step, and what is needed alone.
    heap.os.fail(Call::Commit, 0, 2, OsError::OutOfMemory);
    let block = allocate(&heap, thread, 30 * MIB);
    assert!(!block.is_null());
    let statistics = heap.statistics(None, true);
    assert_eq!((statistics.idle, statistics.cached), (0, 0));
    assert!(statistics.returned >= 20 * MIB as u64);
    // A kernel that goes on refusing is believed, after one try.
    heap.os.fail(Call::Commit, 0, usize::MAX, OsError::OutOfMemory);
    assert!(allocate(&heap, thread, 100 * MIB).is_null());
}

#[test]
fn a_refusal_is_asked_again_even_if_nothing_was_left_to_give_back() {
    // The purger may have given it back between the refusal and the look.
    for size in [100, 30 * MIB] {
        let heap = heap();
        heap.os.fail(Call::Commit, 0, 2, OsError::OutOfMemory);
        assert!(!allocate(&heap, None, size).is_null(), "{size} bytes");
    }
}

#[test]
fn caches_alone_are_worth_another_try() {
    let heap = heap();
    let [own, other] = [heap.attach(), heap.attach()];
    let slots: Vec<_> = (0..64).map(|_| allocate(&heap, other, 32 << 10)).collect();
    free_all(&heap, other, &slots);
    heap.os.fail(Call::Commit, 0, usize::MAX, OsError::OutOfMemory);
    // What the other thread's cache held is enough for it.
    while heap.statistics(None, true).idle > 0 {
        assert!(!allocate(&heap, own, 32 << 10).is_null());
    }
}

#[test]
fn near_the_limit_nothing_asks_for_huge_pages() {
    let heap = heap();
    heap.os.allow_huge_pages();
    for (left_mib, asks) in [(400, true), (40, false), (400, true)] {
        left(&heap, 512, left_mib);
        // Growth, so that the limit is looked at.
        let blocks = [(); 64].map(|()| allocate_mib(&heap, 1));
        after(&heap);
        let block = allocate_mib(&heap, 64);
        assert_eq!(!heap.os.record().asking.is_empty(), asks, "{left_mib} MiB left");
        for block in blocks.into_iter().chain([block]) {
            free(&heap, None, block);
        }
        heap.trim(None);
    }
}
