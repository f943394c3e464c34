//! A signal handler inside an operation of its own thread never waits, whatever lock that operation
//! holds. A wait would be for ever; here the check of lock ranks ends it.

use super::validate;
use crate::heap::{Access, Heap};
use crate::os::fake::Fake;
use crate::size::{CLASS, GRANULE, class_of};

/// Its slabs have a bitmap in metadata memory.
const SMALL: usize = 64;
const LARGE: usize = 3 * GRANULE;

/// All slots of a first slab, and one of a second: with that in reach the first is returned to the
/// arena when it is whole.
fn two_slabs(heap: &Heap<Fake>) -> Vec<*mut u8> {
    let slots = CLASS[class_of(SMALL)].slots as usize;
    (0..=slots).map(|_| heap.allocate(Access::Direct, SMALL)).collect()
}

/// Everything that a handler may do, once with each block that there is.
fn handle(heap: &Heap<Fake>, slots: &[*mut u8], large: *mut u8) {
    for &slot in slots {
        // SAFETY: live, and not used again.
        unsafe { heap.free(Access::Nested, slot) };
    }
    // SAFETY: live, and not used again.
    let large = unsafe { heap.reallocate(Access::Nested, large, 2 * LARGE) };
    let new = [
        heap.allocate(Access::Nested, SMALL),
        heap.allocate(Access::Nested, LARGE),
        heap.allocate_aligned(Access::Nested, SMALL, 4096),
        large,
    ];
    for block in new {
        assert!(!block.is_null());
        // SAFETY: live, and not used again.
        unsafe { heap.free(Access::Nested, block) };
    }
}

fn with_lock_held<G>(hold: impl FnOnce(&'static Heap<Fake>) -> G) {
    let heap = &*Box::leak(Box::new(Heap::new(Fake::new(4 << 10))));
    let slots = two_slabs(heap);
    let large = heap.allocate(Access::Direct, LARGE);
    let held = hold(heap);
    handle(heap, &slots, large);
    drop(held);
    // What was put off is done, and nothing is left of any of it.
    heap.trim(None);
    heap.trim(None);
    assert_eq!(validate(heap), 0);
    let statistics = heap.statistics(None, true);
    assert_eq!((statistics.live, statistics.resident), (0, 0));
}

#[test]
fn handler_while_no_lock_is_held() {
    with_lock_held(|_| ());
}

#[test]
fn handler_while_a_bin_is_locked() {
    with_lock_held(|heap| heap.parts.bins.get(0, class_of(SMALL)).lock(&heap.os));
}

#[test]
fn handler_while_the_arena_is_locked() {
    with_lock_held(|heap| heap.arena.lock(&heap.os));
}
