//! What the child of a fork does with the memory that it shares with its parent.

use super::*;
use crate::os::OsError;
use crate::os::fake::Call;
use crate::size::{CLASS, GRANULE};

const SIZE: usize = 1024;

/// A heap that was forked: with a slab of which every other slot is live, by address.
fn forked() -> (Box<Heap<Fake>>, Vec<*mut u8>) {
    let heap = Box::new(Heap::new(Fake::new(4096)));
    heap.os.set_cpus(1);
    let slots = CLASS[class_of(SIZE)].slots as usize;
    let mut blocks: Vec<_> = (0..slots).map(|_| allocate(&heap, None, SIZE)).collect();
    blocks.sort();
    for &block in blocks.iter().skip(1).step_by(2) {
        // SAFETY: live, and freed once.
        unsafe { free(&heap, None, block) };
    }
    let live = blocks.into_iter().step_by(2).collect();
    heap.freeze(None);
    // SAFETY: frozen just now; the test is the child's only thread.
    unsafe { heap.thaw(true, None) };
    validate(&heap);
    (heap, live)
}

fn slab(block: *mut u8) -> usize {
    block as usize / GRANULE
}

#[test]
fn a_child_takes_slots_of_slabs_of_its_own() {
    let (heap, live) = forked();
    let own: Vec<_> = (0..5).map(|_| allocate(&heap, None, SIZE)).collect();
    assert!(own.iter().all(|&block| slab(block) != slab(live[0])));
    // SAFETY: live, and freed once.
    unsafe { free(&heap, None, live[3]) };
    assert_ne!(slab(allocate(&heap, None, SIZE)), slab(live[0]));
    assert_eq!(validate(&heap), 2);
    for (index, &block) in live.iter().enumerate() {
        if index != 3 {
            // SAFETY: as above.
            unsafe { free(&heap, None, block) };
        }
    }
    assert_eq!(validate(&heap), 1, "the parent's slab is whole and gone");
}

#[test]
fn a_child_without_memory_takes_what_it_shares() {
    let (heap, live) = forked();
    // Nothing fresh: neither more of the region nor another.
    while !allocate(&heap, None, 32 * GRANULE).is_null() {
        heap.os.fail(Call::Commit, 0, 1000, OsError::OutOfMemory);
        heap.os.fail(Call::Reserve, 0, 1000, OsError::OutOfMemory);
    }
    // What is left are single granules: slabs of another class.
    while !allocate(&heap, None, 2 * SIZE).is_null() {}
    let shared = allocate(&heap, None, SIZE);
    assert_eq!(slab(shared), slab(live[0]));
    validate(&heap);
}
