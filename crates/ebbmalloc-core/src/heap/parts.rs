//! The parts of the heap that runs, as its requests and ticks know them.

use super::heap::{Access, Parts};
use super::{Heap, HeapParts};
use crate::base::purged::{Drained, Purged};
use crate::cache::bins::SHARDS;
use crate::cache::cache::Cache;
use crate::os::Os;
use crate::slab::bin::{Bin, Supply};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

impl<O: Os> Parts<O> for HeapParts {
    const SHARDS: usize = SHARDS;

    #[inline]
    fn bin(&self, shard: usize, class: usize) -> &Bin {
        self.bins.get(shard, class)
    }

    unsafe fn pop_or_refill(&self, supply: &Supply<O>, cache: &Cache, class: usize) -> *mut u8 {
        // SAFETY: the caller has entered the cache (contract of `Parts`).
        unsafe { cache.pop_or_refill(supply, &self.bins, class) }
    }

    fn slot_at_home(heap: &Heap<O>, access: Access, class: usize) -> Option<*mut u8> {
        heap.home(access).map(|arena| heap.slot_in(arena, access, class))
    }

    fn large_at_home(heap: &Heap<O>, access: Access, size: usize, align: usize) -> Option<(*mut u8, bool)> {
        heap.home(access).map(|arena| heap.large_in(arena, access, size, align))
    }

    fn allocate_outside(&self, os: &O, size: usize, align: usize) -> *mut u8 {
        let block = self.outside.allocate(os, size, align);
        block.map_or(null_mut(), |start| start as *mut u8)
    }

    fn free_pending(heap: &Heap<O>, access: Access) {
        heap.free_pending(access);
    }

    fn drain(heap: &Heap<O>, all: bool, asked: bool, own: Option<&Cache>) -> Drained {
        heap.silence_hooks(!asked);
        let drained = heap.parts.caches.drain(&heap.supply(), &heap.parts.bins, all, own);
        heap.silence_hooks(false);
        drained
    }

    fn purge_explicit(heap: &Heap<O>, all: bool, asked: bool) -> Purged {
        heap.pass_explicit(all, asked)
    }

    fn give_up_explicit(heap: &Heap<O>) -> usize {
        heap.give_up_explicit()
    }

    fn is_near_limit(heap: &Heap<O>) -> bool {
        heap.is_near_limit() || heap.parts.pressure.pressed.load(Ordering::Relaxed)
    }

    fn count_free_pages(heap: &Heap<O>) -> Option<usize> {
        heap.count_free_pages()
    }
}
