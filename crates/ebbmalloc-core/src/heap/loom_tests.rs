//! Loom: the freeze of a whole heap for a fork, against a thread that allocates and frees and against
//! a pass of the purger.
//!
//! A model cannot split a process in two. Where the child would get its copy, it looks at the heap as
//! the child would find it: every lock held by the forking thread, every structure whole, nothing on
//! its way to the kernel. A race with a thread that is still inside is loom's to report.

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

/// Prepare, what the child finds, parent.
fn fork(heap: &Heap<Fake>) {
    heap.freeze(None);
    // Nothing could be had but by waiting.
    let arena = heap.arena.lock_if(&heap.os, false);
    assert!(arena.is_none() && heap.metadata.allocate(&heap.os, 1, false).is_none());
    assert!(heap.arena.frozen_is_whole(), "something is leaving");
    for class in 1..=CLASSES {
        let bin = heap.bins.get(0, class).raw();
        assert!(bin.try_lock(&heap.os).is_none());
        // SAFETY: frozen above, by this thread.
        unsafe { bin.frozen_value(|slabs| slabs.validate(Shape::new(class, 16))) };
    }
    // SAFETY: frozen above, by this thread.
    unsafe { heap.thaw(false, None) };
}

fn finish(heap: &Heap<Fake>) {
    heap.trim(None);
    let extents = heap.arena.lock(&heap.os);
    assert_eq!(extents.validate(), 0);
    assert_eq!((extents.dirty_granules, extents.leaving_granules), (0, 0));
}

#[test]
fn fork_against_allocation() {
    model(|| {
        let heap = heap();
        let other = spawn({
            let heap = heap.clone();
            move || {
                use_block(&heap, SMALL);
                use_block(&heap, LARGE);
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
            move || heap.trim(None)
        });
        fork(&heap);
        purger.join().unwrap();
        finish(&heap);
    });
}
