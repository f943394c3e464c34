//! The heap over the fake kernel, driven as the faces drive it.

mod clock;
mod explicit;
mod explicit_hooks;
mod explicit_model;
mod fork;
mod growth;
mod lend;
mod model;
mod nested;
mod out_of_band;
mod placement;
mod pressure;
mod rations;

use super::{Access, Heap};
use crate::cache::cache::{Cache, Entered};
use crate::os::{Os, fake::Fake};
use crate::size::{CLASSES, SMALL_MAX, class_of};
use crate::slab::shape::Shape;
use core::ptr::NonNull;

/// A thread's way into the heap: its cache, if it has one.
type Thread = Option<NonNull<Cache>>;

/// What the faces do around every slow operation.
fn with_access<R>(thread: Thread, work: impl FnOnce(Access) -> R) -> R {
    // SAFETY: the tests detach a cache only where they forget it.
    let Some(cache) = thread.map(|cache| unsafe { cache.as_ref() }) else {
        return work(Access::Direct);
    };
    assert_eq!(cache.enter(), Entered::Mine);
    let result = work(Access::Cached(cache));
    cache.leave();
    result
}

/// A block as `malloc` gives it: from the cache, or the slow way.
fn allocate(heap: &Heap<Fake>, thread: Thread, size: usize) -> *mut u8 {
    if size <= SMALL_MAX
        && let Some(cache) = thread
        // SAFETY: the tests detach a cache only where they forget it.
        && let Some(slot) = unsafe { cache.as_ref() }.pop(class_of(size))
    {
        return slot.as_ptr();
    }
    with_access(thread, |access| heap.allocate(access, size))
}

/// As `free` takes a block.
///
/// # Safety
/// The block is live.
unsafe fn free(heap: &Heap<Fake>, thread: Thread, block: *mut u8) {
    if let Some(class @ 1..) = heap.quick_class(block as usize)
        && let Some(cache) = thread
        // SAFETY: the tests detach a cache only where they forget it.
        && unsafe { cache.as_ref() }.push(class, block)
    {
        return;
    }
    // SAFETY: the block is live (fn contract).
    with_access(thread, |access| unsafe { heap.free(access, block) });
}

fn free_all(heap: &Heap<Fake>, thread: Thread, blocks: &[*mut u8]) {
    // SAFETY: the tests free each block once.
    blocks.iter().for_each(|&block| unsafe { free(heap, thread, block) });
}

/// Runs every validator of the layers below; returns the slabs and large blocks that there are.
fn validate(heap: &Heap<Fake>) -> usize {
    let page_shift = heap.os.page_bytes().trailing_zeros();
    for shard in 0..heap.shards() {
        for class in 1..=CLASSES {
            heap.parts
                .bins
                .get(shard, class)
                .lock(&heap.os)
                .validate(Shape::new(class, page_shift));
        }
    }
    heap.arena.lock(&heap.os).validate()
}
