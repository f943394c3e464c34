//! Loom: the gate that a fork closes, against a thread that allocates and frees and against a pass of the purger.
//!
//! A model cannot split a process in two. Where the child would get its copy, the forking thread looks at the heap as
//! the child would find it: no lock held, every structure whole, nothing on its way to the kernel. A race with a thread that
//! is still inside is loom's to report: the look takes no lock.

use super::{Access, Heap};
use crate::os::fake::Fake;
use crate::size::{CLASSES, GRANULE};
use crate::slab::loom_tests::{model, spawn};
use crate::slab::shape::Shape;
use loom::sync::Arc;

const PAGE_BYTES: usize = 64 << 10;
/// Takes the locks of a bin, of the arena and of metadata memory (for the bitmap of its first slab).
const SMALL: usize = 16;
/// Takes the arena's lock.
const LARGE: usize = 2 * GRANULE;

fn heap() -> Arc<Heap<Fake>> {
    let heap = Heap::new(Fake::new(PAGE_BYTES));
    heap.limit_shards(1);
    Arc::new(heap)
}

/// Numbers of the threads.
const FORKING: usize = 1;
const OTHER: usize = 2;

/// Allocates a block, writes to it, and gives it back.
fn use_block(heap: &Heap<Fake>, bytes: usize) {
    let block = heap.allocate(Access::Direct, bytes);
    assert!(!block.is_null());
    heap.os.use_bytes(block as usize, 1);
    // SAFETY: the block is ours until it is freed.
    unsafe {
        block.write(1);
        heap.free(Access::Direct, block);
    }
}

/// The same as a guest, as a thread without a cache does.
fn use_block_as_guest(heap: &Heap<Fake>, bytes: usize) {
    // Time does not pass: no request is served outside.
    assert!(heap.parts.gate.come_in(&heap.os, OTHER));
    use_block(heap, bytes);
    heap.parts.gate.go_out();
}

/// Prepare, what the child finds, parent.
fn fork(heap: &Heap<Fake>) {
    assert!(heap.freeze(FORKING, None));
    assert!(heap.is_at_rest());
    // SAFETY: the gate keeps others out, or else loom finds two at once.
    unsafe {
        assert!(heap.arena.frozen_is_whole(), "something is leaving");
        for class in 1..=CLASSES {
            let bin = heap.parts.bins.get(0, class).raw();
            bin.frozen_value(|slabs| slabs.validate(Shape::new(class, 16)));
        }
    }
    // The forking thread itself goes on meanwhile.
    use_block(heap, SMALL);
    assert!(heap.thaw(FORKING));
}

fn finish(heap: &Heap<Fake>) {
    heap.trim(None);
    let extents = heap.arena.lock(&heap.os);
    assert_eq!(extents.validate(), 0);
    assert_eq!((extents.dirty_granules, extents.leaving_granules), (0, 0));
}

#[test]
fn guest_against_fork() {
    model(|| {
        let heap = heap();
        let other = spawn({
            let heap = heap.clone();
            move || {
                use_block_as_guest(&heap, SMALL);
                use_block_as_guest(&heap, LARGE);
            }
        });
        fork(&heap);
        other.join().unwrap();
        finish(&heap);
    });
}

#[test]
fn fork_against_pass() {
    model(|| {
        let heap = heap();
        use_block(&heap, LARGE);
        let purger = spawn({
            let heap = heap.clone();
            move || {
                assert!(heap.parts.gate.come_in(&heap.os, OTHER));
                heap.trim(None);
                heap.parts.gate.go_out();
            }
        });
        fork(&heap);
        purger.join().unwrap();
        finish(&heap);
    });
}
