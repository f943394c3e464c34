//! The caches of all threads: made at a thread's first request, unmade at its end, and taken over
//! by the purger at its ticks. The cache of a thread that ends goes to the next thread, with the slots in it, if it holds
//! little; the next drain empties it if no thread has come.

mod fork;

use super::bins::{Bins, SHARDS};
use super::cache::Cache;
use super::drain::Drain;
use crate::base::exact::u8_of;
use crate::base::lock::{Lock, Rank, Wait};
use crate::base::purged::Drained;
use crate::base::sync::{AtomicBool, initialiser};
use crate::os::Os;
use crate::size::CLASSES;
use crate::slab::bin::Supply;
use core::ptr::{NonNull, null_mut};

/// Caches claimed at once: enough to share a barrier.
const CLAIMED: usize = if cfg!(loom) { 1 } else { 4 };
/// Slots put back with the list locked once: some 20 microseconds.
const STEP: usize = if cfg!(loom) { 1 } else { 96 };

/// Most bytes in a cache that a thread leaves to the next one.
const LEFT_BYTES: usize = 256 << 10;

/// See the module.
pub struct Registry {
    list: Lock<Caches>,
    /// [`Caches::frozen`], where the lock cannot be taken.
    is_frozen: AtomicBool,
}

struct Caches {
    first: *mut Cache,
    count: usize,
    next_shard: usize,
    /// The caches are claimed for a fork, those to come included, and stay so.
    frozen: bool,
    /// In the list: the cache that a thread left to the next one, or null.
    left: *mut Cache,
    /// The cache that the drain under way comes to next.
    cursor: *mut Cache,
    /// Drains begun: a later one takes the cursor over.
    drains: u32,
}

// SAFETY: the caches at the pointer are Sync.
unsafe impl Send for Caches {}

impl Registry {
    /// Where in a registry the address of the first cache is.
    pub const FIRST: usize = core::mem::offset_of!(Self, list)
        + Lock::<Caches>::VALUE
        + core::mem::offset_of!(Caches, first);

    const EMPTY: Caches = Caches {
        first: null_mut(),
        count: 0,
        next_shard: 0,
        frozen: false,
        left: null_mut(),
        cursor: null_mut(),
        drains: 0,
    };

    initialiser! {
        /// No cache yet.
        pub fn new() -> Self {
            Self { list: Lock::new(Rank::Caches, Self::EMPTY), is_frozen: AtomicBool::new(false) }
        }
    }

    /// Gives the calling thread the cache that another left, or makes one: its shard is that of `processor`, or the next one in turn.
    /// `None` if there is no memory.
    pub fn attach<O: Os>(
        &self,
        supply: &Supply<O>,
        shards: usize,
        processor: Option<usize>,
    ) -> Option<NonNull<Cache>> {
        match self.take_left(supply, shards, processor) {
            None => self.add(supply, shards, processor, false),
            left => left,
        }
    }

    /// Makes an explicit cache. `None` if there is no memory.
    pub fn attach_explicit<O: Os>(&self, supply: &Supply<O>) -> Option<NonNull<Cache>> {
        self.add(supply, 1, None, true)
    }

    fn add<O: Os>(
        &self,
        supply: &Supply<O>,
        shards: usize,
        processor: Option<usize>,
        explicit: bool,
    ) -> Option<NonNull<Cache>> {
        let piece = supply.metadata.allocate(supply.os, Cache::BYTES, Wait::Yes)?;
        let cache = piece.cast::<Cache>();
        let mut caches = self.list.lock(supply.os);
        let shard = caches.next_shard(shards, processor);
        if !explicit {
            caches.count_thread();
        }
        // SAFETY: the piece is ours, long enough, and aligned to a page.
        unsafe {
            Cache::make(cache, u8_of(shard), explicit);
            if caches.frozen {
                cache.as_ref().announce();
            }
            cache.as_ref().next.with_mut(|next| *next = caches.first);
        }
        caches.first = cache.as_ptr();
        Some(cache)
    }

    fn take_left<O: Os>(
        &self,
        supply: &Supply<O>,
        shards: usize,
        processor: Option<usize>,
    ) -> Option<NonNull<Cache>> {
        let mut caches = self.list.lock(supply.os);
        let cache = NonNull::new(core::mem::replace(&mut caches.left, null_mut()))?;
        let shard = caches.next_shard(shards, processor);
        caches.count_thread();
        // SAFETY: the cache is the calling thread's from here on. It may hold slots of another shard, as any cache may.
        unsafe { cache.as_ref().settle(u8_of(shard), 0) };
        Some(cache)
    }

    /// Leaves a cache to the next thread, if it holds little and no other is left; else does as [`Registry::detach`].
    ///
    /// # Safety
    /// As for [`Registry::detach`].
    pub unsafe fn leave<O: Os>(&self, supply: &Supply<O>, bins: &Bins, cache: NonNull<Cache>) {
        let mut caches = self.list.lock(supply.os);
        // SAFETY: with the registry's lock held no purger is at work on a cache, and the owner is here.
        if caches.left.is_null() && unsafe { cache.as_ref().can_be_left() } {
            caches.left = cache.as_ptr();
            caches.count -= 1;
            return;
        }
        drop(caches);
        // SAFETY: the fn contract.
        unsafe { self.detach(supply, bins, cache) };
    }

    /// At the end of the process: the cache that a thread left, which no thread gets any more. `None` if the lock is held.
    pub fn left_at_exit<O: Os>(&self, os: &O) -> Option<&Cache> {
        let left = core::mem::replace(&mut self.list.try_lock(os)?.left, null_mut());
        // SAFETY: null or in the list: it lives on, since only its owner would unmake it, and it has none.
        unsafe { left.as_ref() }
    }

    /// Puts everything in a cache back and unmakes it.
    ///
    /// # Safety
    /// `cache` came from [`Registry::attach`] or [`Registry::attach_explicit`], and its owner, the
    /// calling thread, does not use it again.
    pub unsafe fn detach<O: Os>(&self, supply: &Supply<O>, bins: &Bins, cache: NonNull<Cache>) {
        if cfg!(ebb_mutation = "exit_lock") {
            // SAFETY: none: a purger may be at work on the cache. That is the mutation.
            unsafe { cache.as_ref().drain(supply, bins, true) };
        }
        let mut drain = Drain::new(true);
        let mut caches = self.list.lock(supply.os);
        // SAFETY: with the registry's lock held no purger is at work on a cache, and the owner is
        // here; the links are under the lock.
        unsafe {
            while !cache.as_ref().drain_some(supply, bins, &mut drain, &mut { STEP }) {
                drop(caches);
                caches = self.list.lock(supply.os);
            }
            let next = cache.as_ref().next.with(|next| *next);
            if caches.first == cache.as_ptr() {
                caches.first = next;
            } else {
                let mut at = caches.first;
                while !at.is_null() {
                    let after = (*at).next.with(|next| *next);
                    if after == cache.as_ptr() {
                        (*at).next.with_mut(|link| *link = next);
                        break;
                    }
                    at = after;
                }
            }
            caches.count -= usize::from(!cache.as_ref().explicit);
            if caches.cursor == cache.as_ptr() {
                caches.cursor = next;
            }
            drop(caches);
            supply.metadata.free(supply.os, cache.cast(), Cache::BYTES, false);
        }
    }

    /// Drains the caches whose owners are not inside: of what was cold since the last pass, or with `all` of
    /// everything. `own`, if any, is a cache that the caller has entered; it is drained without a claim.
    ///
    /// It goes in steps, each of which claims a few caches with one barrier and works for some microseconds; in between the lock
    /// is free, so that threads can come and go. A drain that begins meanwhile takes this one's place.
    pub fn drain<O: Os>(
        &self,
        supply: &Supply<O>,
        bins: &Bins,
        all: bool,
        own: Option<&Cache>,
    ) -> Drained {
        let mut drained = Drained::default();
        let mut caches = self.list.lock(supply.os);
        caches.cursor = caches.first;
        caches.drains = caches.drains.wrapping_add(1);
        let number = caches.drains;
        // The drain of the cache at the cursor, if it has begun.
        let mut begun: Option<(*mut Cache, Drain)> = None;
        loop {
            if caches.drains != number {
                drained.busy += 1;
                return drained;
            }
            let Some(cursor) = NonNull::new(caches.cursor) else {
                return drained;
            };
            let drain = match begun.take() {
                Some((cache, drain)) if cache == cursor.as_ptr() => drain,
                _ => Drain::new(all),
            };
            begun = caches.drain_step(supply, bins, own, drain, &mut drained);
            drop(caches);
            caches = self.list.lock(supply.os);
        }
    }

    /// Bytes in all caches that can be looked at, and the number of threads' caches.
    pub fn bytes<O: Os>(&self, os: &O, own: Option<&Cache>) -> (usize, usize) {
        let mut bytes = 0;
        self.by_cache(os, own, |_, more| bytes += more);
        (bytes, self.count(os))
    }

    /// Tells of each cache the bytes in it, 0 where it cannot be looked at.
    pub fn by_cache<O: Os>(
        &self,
        os: &O,
        own: Option<&Cache>,
        mut tell: impl FnMut(&Cache, usize),
    ) {
        self.for_each_seized(os, own, |cache, taken| {
            // SAFETY: seized by `for_each_seized`, or entered by the caller.
            let bytes = if taken { unsafe { cache.bytes() } } else { 0 };
            tell(cache, bytes);
        });
    }

    /// Number of threads' caches.
    pub fn count<O: Os>(&self, os: &O) -> usize {
        self.list.lock(os).count
    }

    /// How many threads' caches are on an explicit arena, by what [`Cache::home`] says.
    pub fn count_at<O: Os>(&self, os: &O, home: u16) -> usize {
        let mut count = 0;
        self.list.lock(os).for_each(|cache| {
            count += usize::from(cache.home() == home && !cache.is_explicit());
        });
        count
    }

    /// Takes the explicit caches off an explicit arena that ends.
    ///
    /// # Safety
    /// They are empty, and no thread uses them meanwhile.
    pub unsafe fn leave_home<O: Os>(&self, os: &O, home: u16) {
        self.list.lock(os).for_each(|cache| {
            if cache.home() == home && cache.is_explicit() {
                // SAFETY: the cache is empty and no thread uses it (fn contract), so it may be on any arena.
                unsafe { cache.settle(cache.shard(), 0) };
            }
        });
    }

    /// Calls `work` with each cache, and whether it could be taken.
    fn for_each_seized<O: Os>(
        &self,
        os: &O,
        own: Option<&Cache>,
        mut work: impl FnMut(&Cache, bool),
    ) {
        let caches = self.list.lock(os);
        let is_own = |cache: &Cache| own.is_some_and(|own| core::ptr::eq(own, cache));
        caches.for_each(|cache| {
            if !is_own(cache) {
                cache.announce();
            }
        });
        let barrier = os.membarrier();
        caches.for_each(|cache| {
            if is_own(cache) {
                work(cache, true);
            } else {
                work(cache, barrier && cache.seize());
                if !caches.frozen {
                    cache.unclaim();
                }
            }
        });
    }
}

impl Cache {
    /// Whether it is as good as a new one for any thread, and holds little.
    ///
    /// # Safety
    /// The caller has the cache to itself.
    unsafe fn can_be_left(&self) -> bool {
        let is_plain = !self.explicit && !self.is_rationed() && self.home() == 0;
        // SAFETY: the fn contract.
        is_plain && unsafe { self.limit_now() == CLASSES && self.bytes() <= LEFT_BYTES }
    }
}

impl Caches {
    /// The shard of a new cache: that of `processor`, or the next one in turn.
    fn next_shard(&self, shards: usize, processor: Option<usize>) -> usize {
        processor.unwrap_or(self.next_shard) % shards.clamp(1, SHARDS)
    }

    fn count_thread(&mut self) {
        self.next_shard += 1;
        self.count += 1;
    }

    /// A step of a drain from the cursor on; `drain` is that of the cache there. What has begun of a drain at the
    /// new cursor comes back.
    fn drain_step<O: Os>(
        &mut self,
        supply: &Supply<O>,
        bins: &Bins,
        own: Option<&Cache>,
        mut drain: Drain,
        drained: &mut Drained,
    ) -> Option<(*mut Cache, Drain)> {
        let is_own = |cache: &Cache| own.is_some_and(|own| core::ptr::eq(own, cache));
        let first = self.cursor;
        let few = || {
            // SAFETY: null or in the list (`detach` sees to it), under whose lock caches live.
            core::iter::successors(unsafe { first.as_ref() }, |cache| unsafe {
                cache.next.with(|next| (*next).as_ref())
            })
            .take(CLAIMED)
        };
        for cache in few().filter(|&cache| !is_own(cache)) {
            cache.announce();
        }
        let barrier = supply.os.membarrier();
        let mut budget = STEP;
        let mut stopped = false;
        for cache in few() {
            let all = drain.all();
            if core::ptr::eq(cache, self.left) {
                drain = drain.of_all();
            }
            if !stopped {
                if is_own(cache) || barrier && cache.seize() {
                    // SAFETY: entered by the caller, or seized just now.
                    stopped = !unsafe { cache.drain_some(supply, bins, &mut drain, &mut budget) };
                    drained.claimed += usize::from(!stopped);
                } else {
                    drained.busy += 1;
                }
            }
            if !stopped {
                drained.put_back_bytes += drain.put_back_bytes;
                drained.kept_bytes += drain.kept_bytes;
                drain = Drain::new(all);
                // SAFETY: the links are under the lock.
                self.cursor = cache.next.with(|next| unsafe { *next });
                stopped = budget == 0;
            }
            if !is_own(cache) && !self.frozen {
                cache.unclaim();
            }
        }
        Some((self.cursor, drain))
    }

    fn for_each(&self, mut work: impl FnMut(&Cache)) {
        let mut at = self.first;
        while let Some(cache) = NonNull::new(at) {
            // SAFETY: caches in the list are live: they are unmade under the lock that `self` is
            // reached through.
            unsafe {
                work(cache.as_ref());
                at = cache.as_ref().next.with(|next| *next);
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
