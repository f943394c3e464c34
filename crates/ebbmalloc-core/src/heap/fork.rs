//! Fork: the heap is quiet while the process is copied, if that can be had ([`super::gate`]), and the child makes it its own.

use super::Heap;
use crate::cache::cache::Cache;
use crate::os::Os;
use core::sync::atomic::Ordering;

impl<O: Os> Heap<O> {
    /// Fork, before: after this no other thread is inside the heap, or one of them does not leave. The calling thread
    /// goes on as ever, with `own`, its cache; `thread` is its number. False if nothing was done, since another fork is under
    /// way.
    pub fn freeze(&self, thread: usize, own: Option<&Cache>) -> bool {
        if !self.parts.gate.close(&self.os, thread) {
            return false;
        }
        self.parts.caches.freeze(&self.os, own);
        self.parts.gate.wait_for_guests(&self.os, || self.parts.caches.is_quiet(&self.os, own) && self.is_at_rest());
        true
    }

    /// [`Heap::freeze`] in a signal handler that interrupted an operation: its thread may hold any lock. Other threads are kept
    /// out, but it is not waited until they have left.
    pub fn freeze_from_inside(&self, thread: usize, own: Option<&Cache>) -> bool {
        let closed = self.parts.gate.close(&self.os, thread);
        if closed {
            self.parts.caches.try_freeze(&self.os, own);
        }
        closed
    }

    /// Fork, after, in the parent. False if the calling thread has not frozen the heap, or has a fork left.
    pub fn thaw(&self, thread: usize) -> bool {
        let may_open = self.parts.gate.may_open(thread);
        if may_open {
            // Frozen by this thread, so its lock is not held by what this may have interrupted.
            if self.parts.caches.is_frozen() {
                self.parts.caches.thaw(&self.os);
            }
            self.parts.gate.open(&self.os);
        }
        may_open
    }

    /// In the child of a fork, where no other thread exists, so no holder of a lock either.
    ///
    /// If no thread of the parent was in the middle of a change, the child uses the heap as it is. Locks and words show whether
    /// one was: the child has all stores of another thread up to some moment and none after it, because Linux copies the page
    /// tables under the lock of the mappings, and a thread that may no longer write to a page waits for that lock. If a change
    /// was under way, it cannot be completed. Then memory that was free at the fork is never used again; live blocks stay.
    ///
    /// # Safety
    /// The process has no other thread, and this one, whose cache is `own`, is not inside an operation.
    pub unsafe fn take_over(&self, own: Option<&Cache>) {
        let whole = self.is_at_rest() || cfg!(ebb_mutation = "fork_torn");
        // SAFETY: the process has no other thread (fn contract), so no thread holds a lock or uses a cache.
        unsafe { self.reset_locks() };
        if whole {
            self.leave_to_parent();
            // SAFETY: the process has no other thread (fn contract), so caches and bins are this one's; the locks are free.
            unsafe { self.parts.caches.take_over(&self.supply(), &self.parts.bins, own) };
        } else {
            // SAFETY: the process has no other thread (fn contract), so caches and bins are this one's.
            unsafe { self.parts.caches.abandon(&self.os, own) };
            for bin in self.used_bins() {
                bin.lock(&self.os).abandon();
            }
            self.arena.lock(&self.os).abandon();
            self.parts.bins.explicit.abandon(&self.os);
            self.metadata.abandon(&self.os);
        }
        self.recount_threads();
    }

    /// In the child of a fork by a thread that was inside an operation, which it completes: what that has locked is
    /// locked.
    ///
    /// # Safety
    /// The process has no other thread.
    pub unsafe fn go_on_inside(&self) {
        self.parts.gate.reset();
        // SAFETY: the process has no other thread (fn contract), so no thread holds a lock or uses a cache.
        unsafe { self.parts.caches.forget_freeze() };
    }

    /// The slabs there are stay the parent's: new blocks come from others.
    fn leave_to_parent(&self) {
        let explicit = self.parts.bins.explicit.live();
        let explicit = explicit.flat_map(|arena| arena.bins().map(|(_, bin)| bin));
        for bin in self.used_bins().chain(explicit) {
            // SAFETY: the guard is the bin's lock.
            unsafe { bin.lock(&self.os).leave_to_parent() };
        }
    }

    /// Whether no thread, the purger included, is in the middle of a change. What a thread has on its way between its cache
    /// and the bins, or to the kernel, is in neither, and is lost to a child without harm.
    pub(super) fn is_at_rest(&self) -> bool {
        // Acquire pairs with the release at a pass's end.
        !self.purging.load(Ordering::Acquire)
            && !self.metadata.is_held()
            && !self.arena.is_held()
            && !self.used_bins().any(|bin| bin.raw().is_held())
            && self.parts.bins.explicit.is_at_rest()
            && !self.parts.caches.is_held()
    }

    /// # Safety
    /// As for [`Heap::take_over`].
    unsafe fn reset_locks(&self) {
        // SAFETY: the process has no other thread (fn contract), so no thread holds a lock or uses a cache.
        unsafe {
            self.metadata.reset();
            self.parts.profile.take_over();
            self.arena.reset();
            for bin in self.used_bins() {
                bin.raw().reset();
            }
            self.parts.bins.explicit.reset_locks();
            self.reset_explicit_caches();
            self.parts.caches.reset();
        }
        self.parts.gate.reset();
        self.parts.pressure.reset();
        self.purging.store(false, Ordering::Relaxed);
        self.parts.counting.store(false, Ordering::Relaxed);
    }
}
