//! Fork: no thread is inside a cache while the process is copied, if that can be had, and the child takes over the
//! caches of the threads that it does not have.

use super::{Caches, Registry};
use crate::base::lock::Guard;
use crate::base::sync::Ordering;
use crate::cache::bins::Bins;
use crate::cache::cache::Cache;
use crate::os::Os;
use crate::slab::bin::Supply;
use core::ptr::{NonNull, null_mut};

impl Registry {
    /// Before a fork: claims every cache but `own`, new ones included, until [`Registry::thaw`]. Threads that are inside a
    /// cache leave it; [`Registry::is_quiet`] says when all have left.
    pub fn freeze<O: Os>(&self, os: &O, own: Option<&Cache>) {
        self.claim_all(self.list.lock(os), own);
        // Without it an owner may be inside a while longer: the child looks again.
        os.membarrier();
    }

    /// [`Registry::freeze`] if the list's lock is free: for a caller that may hold it.
    pub fn try_freeze<O: Os>(&self, os: &O, own: Option<&Cache>) {
        if let Some(caches) = self.list.try_lock(os) {
            self.claim_all(caches, own);
            os.membarrier();
        }
    }

    fn claim_all<O: Os>(&self, mut caches: Guard<'_, Caches, O>, own: Option<&Cache>) {
        caches.frozen = true;
        // Relaxed: the one thread that has the gate writes and reads it.
        self.is_frozen.store(true, Ordering::Relaxed);
        caches.for_each(|cache| {
            if !own.is_some_and(|own| core::ptr::eq(own, cache)) {
                cache.announce();
            }
        });
    }

    /// Whether the caches are claimed for a fork: asked by the thread that forks.
    pub fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Relaxed)
    }

    /// Before a fork: whether no thread is inside a cache but `own`.
    pub fn is_quiet<O: Os>(&self, os: &O, own: Option<&Cache>) -> bool {
        let mut quiet = true;
        self.list.lock(os).for_each(|cache| {
            let is_own = own.is_some_and(|own| core::ptr::eq(own, cache));
            quiet &= is_own || cache.seize() || cfg!(ebb_mutation = "fork_wait");
        });
        quiet
    }

    /// Fork, after, in the parent.
    pub fn thaw<O: Os>(&self, os: &O) {
        let mut caches = self.list.lock(os);
        caches.frozen = false;
        self.is_frozen.store(false, Ordering::Relaxed);
        caches.for_each(Cache::unclaim);
    }

    /// In the child of a fork by a thread that is inside an operation: caches are not claimed any more. It may hold the
    /// list's lock, though not since [`Registry::freeze`].
    ///
    /// # Safety
    /// The process has no other thread.
    pub unsafe fn forget_freeze(&self) {
        self.is_frozen.store(false, Ordering::Relaxed);
        // SAFETY: no other thread is there to touch the list, and links change in one store each.
        unsafe {
            self.list.frozen_value(|caches| {
                caches.frozen = false;
                caches.for_each(Cache::unclaim);
            });
        }
    }

    /// In the child of a fork that found the heap whole: the other threads are gone. Their caches are drained and unmade, if
    /// they were not inside at the fork; else their memory is lost, as the threads' stacks are. Explicit
    /// caches stay.
    ///
    /// # Safety
    /// The process has no other thread, and its thread is inside no cache; all locks are free.
    pub unsafe fn take_over<O: Os>(&self, supply: &Supply<O>, bins: &Bins, own: Option<&Cache>) {
        let mut orphans = null_mut::<Cache>();
        self.forget_left();
        // SAFETY: the links are under the lock.
        unsafe {
            let mut caches = self.list.lock(supply.os);
            let mut at = caches.first;
            caches.first = null_mut();
            caches.cursor = null_mut();
            caches.count = 0;
            caches.frozen = false;
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
        }
        while let Some(cache) = NonNull::new(orphans) {
            // SAFETY: the loop above took the cache out of the list, and no thread of this process owns it: there is one only (fn contract).
            unsafe {
                orphans = cache.as_ref().next.with(|next| *next);
                if cache.as_ref().seize() {
                    cache.as_ref().drain(supply, bins, true);
                    supply.metadata.free(supply.os, cache.cast(), Cache::BYTES, false);
                }
            }
        }
    }

    /// Whether somebody is at work on the list.
    pub fn is_held(&self) -> bool {
        self.list.is_held()
    }

    /// In the child of a fork that found the heap half changed: no cache keeps anything, and those of the threads that
    /// this process does not have are forgotten.
    ///
    /// # Safety
    /// The process has no other thread, and its thread is inside no cache.
    pub unsafe fn abandon<O: Os>(&self, os: &O, own: Option<&Cache>) {
        self.forget_left();
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
        // SAFETY: the thread that held the lock does not exist in this process (fn contract).
        unsafe { self.list.reset() }
        self.is_frozen.store(false, Ordering::Relaxed);
    }
}
