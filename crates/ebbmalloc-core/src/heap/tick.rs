//! A tick of the purger, and the trim that does at once what the ticks do over time.

use super::heap::{Access, HeapWith, Parts};
use crate::base::purged::Purged;
use crate::cache::cache::Cache;
use crate::os::Os;
use crate::size::CLASSES;
use crate::slab::bin::Supply;
use crate::slab::sweep::Sweep;
use core::sync::atomic::Ordering;

/// Why a pass is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The purger's clock: pages that were idle at two ticks are returned.
    Tick,
    /// The purger's clock, near the limit: all free pages are returned.
    TickNearLimit,
    /// On request: all free pages are returned, and the tick is not counted.
    Trim,
}

/// What a tick found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Bytes that were returned to the kernel.
    pub returned_bytes: usize,
    /// Bytes that the kernel refused to take, because they are locked in memory.
    pub refused_bytes: usize,
    /// Bytes that no longer count against RLIMIT_AS or RLIMIT_DATA.
    pub given_bytes: usize,
    /// Bytes that moved from caches to slabs.
    pub drained_bytes: usize,
    /// Bytes that stay in caches.
    pub cached_bytes: usize,
    /// Free memory remains that later ticks will return.
    pub more: bool,
}

impl<O: Os, P: Parts<O>> HeapWith<O, P> {
    /// One tick: cold slots are moved from caches to bins, and pages that were idle at two ticks are returned to the
    /// kernel; near the limit (`pressure`) all free pages. `own` as for [`HeapWith::trim`]. Does nothing if another pass
    /// is under way.
    pub fn tick(&self, own: Option<&Cache>) -> Tick {
        let reason = if P::is_near_limit(self) { Reason::TickNearLimit } else { Reason::Tick };
        self.pass(reason, own).unwrap_or_default()
    }

    /// Returns all free memory to the kernel, also that in caches whose threads are not using them. `own` is the calling
    /// thread's cache, if it has entered it. True if anything was returned.
    pub fn trim(&self, own: Option<&Cache>) -> bool {
        self.give_back(own) > 0
    }

    /// A request found no memory: returns all free memory and drains the caches. The caller tries again in any case, because
    /// the purger may have returned memory in between.
    pub(super) fn relieve(&self, own: Option<&Cache>) {
        self.give_back(own);
    }

    /// Bytes returned to the kernel.
    fn give_back(&self, own: Option<&Cache>) -> usize {
        let mut returned = 0;
        // The second pass gets slots that were on their way between cache and bin during the first.
        for _ in 0..2 {
            let Some(tick) = self.wait_for_pass(own) else {
                break;
            };
            returned += tick.returned_bytes + tick.given_bytes;
            if tick.returned_bytes == 0 {
                break;
            }
        }
        returned
    }

    fn wait_for_pass(&self, own: Option<&Cache>) -> Option<Tick> {
        // The purger makes the other pass. It takes milliseconds, or longer if the purger has to wait for a processor.
        const YIELDS: usize = 10_000;
        const NAPS: usize = 1000;
        for turn in 0..YIELDS + NAPS {
            if let Some(tick) = self.pass(Reason::Trim, own) {
                return Some(tick);
            }
            if turn < YIELDS {
                self.os.yield_now();
            } else {
                self.nap();
            }
        }
        None
    }

    /// Sleeps for a millisecond.
    pub(super) fn nap(&self) {
        let nobody = core::sync::atomic::AtomicU32::new(0);
        self.os.wait(&nobody, 0, Some(1));
    }

    fn pass(&self, reason: Reason, own: Option<&Cache>) -> Option<Tick> {
        let force = reason != Reason::Tick;
        // Acquire pairs with the release below: a pass sees everything that the one before it did.
        if self.purging.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return None;
        }
        if reason != Reason::Trim {
            self.passes.fetch_add(1, Ordering::Relaxed);
            self.counters.ticks.fetch_add(1, Ordering::Relaxed);
        } else {
            self.counters.trims.fetch_add(1, Ordering::Relaxed);
        }
        self.arena.reset_freed();
        P::free_pending(self, Access::Direct);
        let supply = self.supply();
        let asked = reason == Reason::Trim;
        let drained = P::drain(self, force, asked, own);
        let mut purged = Purged::default();
        let sweeps_own = asked || !self.keeps_own.load(Ordering::Relaxed);
        if sweeps_own {
            purged.add(self.sweep(&supply, force));
            purged.add(self.arena.purge(&self.os, supply.tick, force));
        }
        purged.add(P::purge_explicit(self, force, asked));
        let given_bytes = self.arena.give_up(&self.os) + P::give_up_explicit(self);
        purged.add(self.metadata.purge(&self.os, force));
        self.count_purged(&purged);
        let counters = &self.counters;
        counters.claims.fetch_add(drained.claimed as u64, Ordering::Relaxed);
        counters.claims_refused.fetch_add(drained.busy as u64, Ordering::Relaxed);
        counters.cached_bytes.store(drained.kept_bytes, Ordering::Relaxed);
        let free_page_bytes = if sweeps_own { Some(purged.left_bytes) } else { P::count_free_pages(self) };
        if let Some(bytes) = free_page_bytes {
            counters.free_page_bytes.store(bytes, Ordering::Relaxed);
        }
        self.purging.store(false, Ordering::Release);
        Some(Tick {
            returned_bytes: purged.returned_bytes,
            refused_bytes: purged.refused_bytes,
            given_bytes,
            drained_bytes: drained.put_back_bytes,
            cached_bytes: drained.kept_bytes,
            more: purged.more,
        })
    }

    /// The pages inside live slabs. Not part of the pass's own frame: it takes 6 KiB of stack.
    #[inline(never)]
    fn sweep(&self, supply: &Supply<O>, force: bool) -> Purged {
        let mut sweep = Sweep::new(supply, force);
        for shard in 0..self.shards() {
            for class in 1..=CLASSES {
                sweep.bin(self.parts.bin(shard, class), class);
            }
        }
        sweep.finish()
    }
}
