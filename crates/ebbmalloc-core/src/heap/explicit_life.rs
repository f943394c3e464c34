//! What happens to an explicit arena as a whole: its return to the kernel, its reset and its end, and the
//! threads that come to it.

use super::{Access, Heap};
use crate::base::exact::u8_of;
use crate::base::lock::Wait;
use crate::base::purged::Purged;
use crate::cache::cache::Entered;
use crate::cache::explicit::ExplicitArena;
use crate::os::Os;
use core::sync::atomic::Ordering;

/// Times that the end of all other use of an arena is waited for, in slices of time.
const PATIENCE: usize = 10_000;

/// What became of a thread that was to go to another arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is there.
    Done,
    /// There is no arena of that index.
    NoArena,
    /// The purger has its cache for the moment.
    Busy,
    /// It has no cache.
    NoCache,
}

impl<O: Os> Heap<O> {
    /// After an operation: purges an arena that no pass looks at, because hooks are code of the program's
    /// and its threads have to run it, or that keeps nothing idle.
    #[inline]
    pub(super) fn tend(&self, arena: &ExplicitArena, access: Access, freed: bool) {
        if access.may_wait() && arena.is_due(self.now(), freed) {
            self.purge_arena(arena, arena.decay_ms() == 0);
        }
    }

    /// Returns what is idle in an explicit arena, or with `force` all that is free; whatever its decay
    /// time says, and through its hooks. False, and nothing happened, if a pass is under way.
    pub fn purge_arena(&self, arena: &ExplicitArena, force: bool) -> bool {
        // Acquire and release pair as in `Heap::pass`.
        if self.purging.swap(true, Ordering::Acquire) {
            return false;
        }
        let purged = self.with_arena(arena, |supply| arena.purge(supply, force));
        self.count_purged(&purged);
        self.purging.store(false, Ordering::Release);
        true
    }

    /// One pass over the explicit arenas. Unless it is `asked` for, those are left out that keep everything,
    /// and those with hooks: the pass may be the purger's, and hooks are code of the program's.
    pub(super) fn pass_explicit(&self, force: bool, asked: bool) -> Purged {
        let mut purged = Purged::default();
        for arena in self.parts.bins.explicit.live() {
            if asked || arena.decay_ms() >= 0 && arena.hooks().is_null() {
                purged.add(self.with_arena(arena, |supply| arena.purge(supply, force)));
            }
        }
        purged
    }

    /// Gives up what explicit arenas have free, if something is scarce; how many bytes.
    pub(super) fn give_up_explicit(&self) -> usize {
        let arenas = self.parts.bins.explicit.live().filter(|arena| arena.hooks().is_null());
        arenas.map(|arena| self.with_arena(arena, |supply| supply.arena.give_up(supply.os))).sum()
    }

    /// While a pass may be the purger's, what comes back to arenas with hooks out of caches is not joined.
    pub(super) fn silence_hooks(&self, silent: bool) {
        for arena in self.parts.bins.explicit.live() {
            if !arena.hooks().is_null() {
                arena.arena.set_silent(&self.os, silent);
            }
        }
    }

    /// Takes back every block of an explicit arena, wherever it is.
    ///
    /// # Safety
    /// No thread uses a block of it any more, or calls anything for it meanwhile.
    pub unsafe fn reset_arena(&self, access: Access, arena: &ExplicitArena) {
        self.alone_with(access, || {
            // SAFETY: no thread uses a block of it (fn contract), and `alone_with` keeps passes away and empties all caches.
            unsafe { self.reset_blocks(arena) };
        });
    }

    /// Ends an explicit arena: all its blocks, its address space, its index. False, and nothing happened,
    /// if threads are on it or it has ended already.
    ///
    /// # Safety
    /// As for [`Heap::reset_arena`].
    pub unsafe fn end_arena(&self, access: Access, arena: &ExplicitArena) -> bool {
        let explicit = &self.parts.bins.explicit;
        let mut ended = false;
        self.alone_with(access, || {
            // Not before the caches are empty: their slots are put back by address.
            if arena.threads() > 0 || !explicit.begin_end(arena) {
                return;
            }
            ended = true;
            // SAFETY: no thread uses a block of it (fn contract), and `alone_with` keeps passes away and empties all caches.
            unsafe { self.reset_blocks(arena) };
            // SAFETY: `alone_with` emptied all caches, and no thread uses one for this arena (fn contract).
            unsafe { self.parts.caches.leave_home(&self.os, arena.home()) };
            // SAFETY: reset just now.
            unsafe { explicit.end(arena, &self.supply()) };
        });
        ended
    }

    /// # Safety
    /// As for [`ExplicitArena::reset`].
    unsafe fn reset_blocks(&self, arena: &ExplicitArena) {
        // SAFETY: no thread uses a block, no cache holds a slot (contract of `ExplicitArena::reset`); the profile's lock may be taken while the arena's is held.
        self.with_arena(arena, |supply| unsafe {
            arena.reset(supply, |head| {
                self.forget_sample(head, Wait::Yes);
            });
        });
    }

    /// Calls `work` while no pass is under way, with what handlers postponed freed and all caches empty.
    fn alone_with(&self, access: Access, work: impl FnOnce()) {
        // Acquire and release pair as in `Heap::pass`.
        while self.purging.swap(true, Ordering::Acquire) {
            self.os.yield_now();
        }
        self.free_pending(Access::Direct);
        let supply = self.supply();
        for _ in 0..if cfg!(ebb_mutation = "reset_drain") { 0 } else { PATIENCE } {
            let drained = self.parts.caches.drain(&supply, &self.parts.bins, true, access.own());
            if drained.busy == 0 {
                break;
            }
            self.os.yield_now();
        }
        work();
        self.purging.store(false, Ordering::Release);
    }

    /// Puts the calling thread's cache on another shard, or on an explicit arena, and empties it.
    pub fn move_cache(&self, access: Access, index: usize) -> Moved {
        let (cache, entered) = match access {
            Access::Cached(cache) => (cache, true),
            // The thread goes around its cache, or the purger has it.
            Access::Around(cache) => (cache, false),
            Access::Direct | Access::Nested | Access::Outside => return Moved::NoCache,
        };
        let arena = self.explicit_arena(index);
        if arena.is_none() && index >= self.shards() {
            return Moved::NoArena;
        }
        if !entered && cache.enter() != Entered::Mine {
            return Moved::Busy;
        }
        match arena {
            Some(_) => self.settle(cache, cache.shard(), arena),
            None => self.settle(cache, u8_of(index), None),
        }
        if !entered {
            cache.leave();
        }
        Moved::Done
    }

    /// Index of the arena that the calling thread is on.
    pub fn arena_of_thread(&self, access: Access) -> usize {
        match (self.home(access), access) {
            (Some(arena), _) => self.index_of(arena),
            (None, Access::Cached(cache) | Access::Around(cache)) => cache.shard() as usize,
            (None, Access::Direct | Access::Nested | Access::Outside) => 0,
        }
    }

    /// In a child of fork: it has one thread.
    pub(super) fn recount_threads(&self) {
        for arena in self.parts.bins.explicit.live() {
            arena.recount_threads(self.parts.caches.count_at(&self.os, arena.home()));
        }
    }
}
