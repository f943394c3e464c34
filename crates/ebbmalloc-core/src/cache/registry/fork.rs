//! Fork: no thread is inside a cache while the process is copied, and the child takes over the caches of
//! the threads that it does not have.

use super::Registry;
use crate::base::sync::spin_hint;
use crate::cache::bins::Bins;
use crate::cache::cache::Cache;
use crate::os::Os;
use crate::slab::bin::Supply;
use core::ptr::{NonNull, null_mut};

/// Times a fork waits for a thread that is inside its cache (about a microsecond each) before it
/// forks all the same; what that cache holds is then lost to the child.
const FORK_PATIENCE: usize = 10_000;

impl Registry {
    /// Fork, before: claims every cache and waits until no other thread is inside one. The registry
    /// stays locked.
    pub fn freeze<O: Os>(&self, os: &O, own: Option<&Cache>) {
        self.list.freeze(os);
        // SAFETY: the lock was taken just above and is held until `thaw`.
        unsafe {
            self.list.frozen_value(|caches| {
                caches.frozen = true;
                caches.for_each(|cache| cache.announce());
                let barrier = os.membarrier();
                caches.for_each(|cache| {
                    if own.is_some_and(|own| core::ptr::eq(own, cache))
                        || !barrier
                        || cfg!(ebb_mutation = "fork_wait")
                    {
                        return;
                    }
                    for turn in 0..FORK_PATIENCE {
                        if cache.seize() {
                            break;
                        }
                        if turn % 16 == 15 {
                            os.yield_now();
                        }
                        spin_hint();
                    }
                });
            });
        }
    }

    /// Fork, after, in the parent.
    ///
    /// # Safety
    /// The calling thread called [`Registry::freeze`].
    pub unsafe fn thaw_parent<O: Os>(&self, os: &O) {
        // SAFETY: the caller's promise.
        unsafe {
            self.list.frozen_value(|caches| {
                caches.frozen = false;
                caches.for_each(Cache::unclaim);
            });
            self.list.thaw(os);
        }
    }

    /// Fork, after, in the child: the other threads are gone. Their caches are drained and unmade, if
    /// they were not inside at the fork; else their memory is lost, as the threads' stacks are. Explicit
    /// caches stay.
    ///
    /// # Safety
    /// The calling thread, or its parent's, called [`Registry::freeze`]; all locks below are free.
    pub unsafe fn thaw_child<O: Os>(&self, supply: &Supply<O>, bins: &Bins, own: Option<&Cache>) {
        let mut orphans = null_mut::<Cache>();
        // SAFETY: the caller's promise; the child has one thread.
        unsafe {
            self.list.frozen_value(|caches| {
                caches.frozen = false;
                let mut at = caches.first;
                caches.first = null_mut();
                caches.count = 0;
                while let Some(cache) = NonNull::new(at) {
                    at = cache.as_ref().next.with(|next| *next);
                    let is_own = own.is_some_and(|own| core::ptr::eq(own, cache.as_ref()));
                    if is_own || cache.as_ref().explicit {
                        cache.as_ref().unclaim();
                        cache.as_ref().next.with_mut(|next| *next = caches.first);
                        caches.first = cache.as_ptr();
                        caches.count += usize::from(is_own);
                    } else {
                        cache.as_ref().next.with_mut(|next| *next = orphans);
                        orphans = cache.as_ptr();
                    }
                }
            });
            self.list.thaw(supply.os);
            while let Some(cache) = NonNull::new(orphans) {
                orphans = cache.as_ref().next.with(|next| *next);
                if cache.as_ref().seize() {
                    cache.as_ref().drain(supply, bins, true);
                    supply
                        .metadata
                        .free(supply.os, cache.cast(), Cache::BYTES, false);
                }
            }
        }
    }

    /// Whether nobody is at work on the list, or inside a cache but for the one whose owner asks. In the child of a
    /// fork that ran no handlers.
    pub fn is_at_rest(&self, own: Option<&Cache>) -> bool {
        if self.list.is_held() {
            return false;
        }
        let mut rest = true;
        // SAFETY: the child has one thread, and the list's lock is free.
        unsafe {
            self.list.frozen_value(|caches| {
                caches.for_each(|cache| {
                    let is_own = own.is_some_and(|own| core::ptr::eq(own, cache));
                    rest &= is_own || cache.seize();
                });
            });
        }
        rest
    }

    /// In the child of a fork that found the heap half changed: no cache keeps anything, and those of the threads that
    /// this process does not have are forgotten.
    ///
    /// # Safety
    /// The process has no other thread, and its thread is inside no cache.
    pub unsafe fn abandon<O: Os>(&self, os: &O, own: Option<&Cache>) {
        let mut caches = self.list.lock(os);
        let mut at = caches.first;
        caches.first = null_mut();
        caches.cursor = null_mut();
        caches.count = 0;
        caches.frozen = false;
        while let Some(cache) = NonNull::new(at) {
            // SAFETY: links change in one store each, so the list is one; what is in it lives. The caller is alone.
            unsafe {
                let cache = cache.as_ref();
                at = cache.next.with(|next| *next);
                let is_own = own.is_some_and(|own| core::ptr::eq(own, cache));
                if is_own || cache.explicit {
                    cache.unclaim();
                    cache.forget_slots();
                    cache.next.with_mut(|next| *next = caches.first);
                    caches.first = core::ptr::from_ref(cache).cast_mut();
                    caches.count += usize::from(is_own);
                }
            }
        }
    }

    /// See [`Lock::reset`](crate::base::lock::Lock::reset).
    ///
    /// # Safety
    /// As there.
    pub unsafe fn reset(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.list.reset() }
    }
}
