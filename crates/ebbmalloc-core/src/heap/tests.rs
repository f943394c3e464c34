//! The heap over the fake kernel, driven as the faces drive it.

mod clock;
mod explicit;
mod explicit_hooks;
mod explicit_model;
mod fork;
mod growth;
mod lead;
mod model;
mod nested;
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

/// As `free` takes a block: the tests free each block once.
fn free(heap: &Heap<Fake>, thread: Thread, block: *mut u8) {
    if let Some(class @ 1..) = heap.quick_class(block as usize)
        && let Some(cache) = thread
        // SAFETY: the tests detach a cache only where they forget it.
        && unsafe { cache.as_ref() }.push(class, block)
    {
        return;
    }
    // SAFETY: the block is live: the tests free each block once.
    with_access(thread, |access| unsafe { heap.free(access, block) });
}

/// What a block holds. The tests ask for live blocks only.
fn usable(heap: &Heap<Fake>, block: *mut u8) -> usize {
    // SAFETY: the block is live: the tests ask before they free it.
    unsafe { heap.usable_size(block) }
}

/// What the child of a fork does first; `thread` is the one that forked.
fn become_child(heap: &Heap<Fake>, thread: Thread) {
    // SAFETY: no other thread of the test's process is at work on this heap, and this one is inside no operation.
    unsafe { heap.take_over(thread.map(|cache| &*cache.as_ptr())) };
}

fn free_all(heap: &Heap<Fake>, thread: Thread, blocks: &[*mut u8]) {
    blocks.iter().for_each(|&block| free(heap, thread, block));
}

/// Runs every validator of the layers below; returns the slabs and large blocks that there are.
fn validate(heap: &Heap<Fake>) -> usize {
    let page_shift = heap.os.page_bytes().trailing_zeros();
    for shard in 0..heap.shards() {
        for class in 1..=CLASSES {
            heap.parts.bins.get(shard, class).lock(&heap.os).validate(Shape::new(class, page_shift));
        }
    }
    heap.arena.lock(&heap.os).validate()
}
