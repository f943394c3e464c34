//! Explicit caches: made and ended on request, and used by whichever thread names one. They are caches
//! like those of threads, in the same registry, so the purger drains them as well.
//!
//! Two threads that name one cache at the same time break a promise of theirs; what one of them asks
//! for goes around the cache then.

use super::explicit_cache_table::MOST;
use super::{Access, Heap};
use crate::base::lock::Wait;
use crate::cache::cache::{Cache, Entered};
use crate::cache::explicit::ExplicitArena;
use crate::os::Os;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

impl<O: Os> Heap<O> {
    /// Makes an explicit cache, on the arena that the calling thread is on; its index. `None` if there is
    /// no memory, or no index.
    pub fn create_cache(&self, access: Access) -> Option<usize> {
        let cache = self.parts.caches.attach_explicit(&self.supply())?;
        // SAFETY: made just now, and no other thread knows it.
        let fresh = unsafe { cache.as_ref() };
        let (shard, home) = match access {
            Access::Cached(own) | Access::Around(own) => (own.shard(), own.home()),
            Access::Direct | Access::Nested | Access::Outside => (0, 0),
        };
        if fresh.enter() == Entered::Mine {
            self.settle(fresh, shard, self.parts.bins.explicit.get(home));
            fresh.leave();
        }
        let index = self.enter_cache(cache.as_ptr());
        if index.is_none() {
            // SAFETY: attached above, and not used by any thread.
            unsafe { self.detach(cache) };
        }
        index
    }

    fn enter_cache(&self, cache: *mut Cache) -> Option<usize> {
        let explicit = &self.parts.explicit_caches;
        let _changing = explicit.changing.lock(&self.os);
        if explicit.table.load(Ordering::Relaxed).is_null() {
            let bytes = size_of::<[AtomicPtr<Cache>; MOST]>();
            let piece = self.metadata.allocate(&self.os, bytes, Wait::Yes)?;
            // SAFETY: the piece is ours and long enough; zeros are null pointers.
            unsafe { piece.write_bytes(0, bytes) };
            explicit.table.store(piece.as_ptr().cast(), Ordering::Release);
        }
        (0..MOST).find(|&index| {
            explicit.place(index).is_some_and(|place| {
                let free = place.load(Ordering::Relaxed).is_null();
                if free {
                    place.store(cache, Ordering::Release);
                }
                free
            })
        })
    }

    /// The explicit cache of an index.
    pub fn explicit_cache(&self, index: usize) -> Option<&Cache> {
        let cache = self.parts.explicit_caches.place(index)?.load(Ordering::Acquire);
        // SAFETY: null or a cache that lives until the program ends it.
        unsafe { cache.as_ref() }
    }

    /// Puts everything that an explicit cache holds back. False if there is none of that index.
    pub fn flush_cache(&self, index: usize) -> bool {
        let Some(cache) = self.explicit_cache(index) else {
            return false;
        };
        self.with_entered(cache, |cache| {
            // SAFETY: entered.
            unsafe { cache.drain(&self.supply(), &self.parts.bins, true) };
        });
        true
    }

    /// Ends an explicit cache. False if there is none of that index.
    ///
    /// # Safety
    /// No thread uses it meanwhile, or names it again.
    pub unsafe fn end_cache(&self, index: usize) -> bool {
        let cache = {
            let _changing = self.parts.explicit_caches.changing.lock(&self.os);
            let place = self.parts.explicit_caches.place(index);
            place.map_or(null_mut(), |place| place.swap(null_mut(), Ordering::Acquire))
        };
        match core::ptr::NonNull::new(cache) {
            Some(cache) => {
                // SAFETY: taken out of the table just now, so no thread finds it, and no thread is inside it (fn contract).
                unsafe { self.detach(cache) };
                true
            }
            None => false,
        }
    }

    /// Calls `work` with an access through an explicit cache that refills from `arena` (`None`: from where
    /// it did). The caller's own access if another thread is in the cache.
    pub fn with_cache<R>(
        &self,
        access: Access,
        cache: &Cache,
        arena: Option<&ExplicitArena>,
        work: impl FnOnce(Access) -> R,
    ) -> R {
        if !access.may_wait() {
            return work(access);
        }
        match cache.enter() {
            Entered::Mine => {
                if arena.is_some_and(|arena| arena.home() != cache.home()) {
                    self.settle(cache, cache.shard(), arena);
                }
                let result = work(Access::Cached(cache));
                cache.leave();
                result
            }
            Entered::Claimed | Entered::Nested => work(Access::Around(cache)),
        }
    }

    /// Empties an entered cache and puts it on another shard or arena.
    pub(super) fn settle(&self, cache: &Cache, shard: u8, arena: Option<&ExplicitArena>) {
        if !cache.is_explicit() {
            if let Some(arena) = arena {
                arena.count_threads(1);
            }
            if let Some(before) = self.parts.bins.explicit.get(cache.home()) {
                before.count_threads(-1);
            }
        }
        // SAFETY: the caller has entered the cache, which is drained first.
        unsafe {
            cache.drain(&self.supply(), &self.parts.bins, true);
            cache.settle(shard, arena.map_or(0, ExplicitArena::home));
        }
    }

    /// Enters a cache as soon as the purger leaves it; goes without if a thread never does.
    fn with_entered(&self, cache: &Cache, work: impl FnOnce(&Cache)) {
        for _ in 0..10_000 {
            match cache.enter() {
                Entered::Mine => {
                    work(cache);
                    return cache.leave();
                }
                Entered::Claimed => self.os.yield_now(),
                Entered::Nested => return,
            }
        }
    }

    /// See [`Heap::reset_locks`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn reset_explicit_caches(&self) {
        // SAFETY: no other thread of this process exists that could hold it (contract of `reset_locks`).
        unsafe { self.parts.explicit_caches.changing.reset() }
    }
}
