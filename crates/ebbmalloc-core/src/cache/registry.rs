//! The caches of all threads: made at a thread's first request, unmade at its end, and taken over
//! by the purger at its ticks. A thread that ends leaves its cache, with the slots in it, to the next thread, if it holds
//! little; the next drain empties it. Both take no lock: thread after thread on all processors would meet there.

mod fork;

use super::bins::{Bins, SHARDS};
use super::cache::{Cache, Entered};
use super::drain::Drain;
use crate::base::exact::u8_of;
use crate::base::lock::{Lock, Rank, Wait};
use crate::base::purged::Drained;
use crate::base::sync::{AtomicBool, AtomicPtr, Ordering, initialiser};
use crate::os::Os;
use crate::size::CLASSES;
use crate::slab::bin::Supply;
use core::ptr::{NonNull, null_mut};

/// Caches claimed at once: enough to share a barrier.
const CLAIMED: usize = if cfg!(loom) { 1 } else { 4 };
/// Slots put back with the list locked once: some 20 microseconds.
const STEP: usize = if cfg!(loom) { 1 } else { 96 };

/// Caches that are left at a time: one for each processor of most machines.
pub const LEFT: usize = if cfg!(loom) { 1 } else { 16 };
/// Most bytes in one of them.
const LEFT_BYTES: usize = 256 << 10;

/// See the module.
pub struct Registry {
    list: Lock<Caches>,
    /// Caches in the list without an owner, or null. Who swaps one out owns it: acquire, which pairs with the release of who
    /// put it there.
    left: [AtomicPtr<Cache>; LEFT],
    /// [`Caches::frozen`], where the lock cannot be taken.
    is_frozen: AtomicBool,
}

struct Caches {
    first: *mut Cache,
    count: usize,
    next_shard: usize,
    /// The caches are claimed for a fork, those to come included, and stay so.
    frozen: bool,
    /// The cache that the drain under way comes to next.
    cursor: *mut Cache,
    /// Drains begun: a later one takes the cursor over.
    drains: u32,
}

// SAFETY: the caches at the pointer are Sync.
unsafe impl Send for Caches {}

impl Registry {
    /// Where in a registry the address of the first cache is.
    pub const FIRST: usize =
        core::mem::offset_of!(Self, list) + Lock::<Caches>::VALUE + core::mem::offset_of!(Caches, first);

    const EMPTY: Caches =
        Caches { first: null_mut(), count: 0, next_shard: 0, frozen: false, cursor: null_mut(), drains: 0 };

    initialiser! {
        /// No cache yet.
        pub fn new() -> Self {
            Self {
                list: Lock::new(Rank::Caches, Self::EMPTY),
                #[cfg(not(loom))]
                left: [const { AtomicPtr::new(null_mut()) }; LEFT],
                #[cfg(loom)]
                left: [AtomicPtr::new(null_mut())],
                is_frozen: AtomicBool::new(false),
            }
        }
    }

    /// Makes a cache for the calling thread: its shard is that of `processor`, or the next one in turn.
    /// `None` if there is no memory.
    pub fn attach<O: Os>(&self, supply: &Supply<O>, shards: usize, processor: Option<usize>) -> Option<NonNull<Cache>> {
        self.add(supply, shards, processor, false)
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
        let shard = processor.unwrap_or(caches.next_shard) % shards.clamp(1, SHARDS);
        if !explicit {
            caches.next_shard += 1;
            caches.count += 1;
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

    /// A cache that a thread left; the calling thread owns it from here on.
    pub fn take_left(&self) -> Option<NonNull<Cache>> {
        self.left.iter().find_map(|left| {
            NonNull::new(left.load(Ordering::Relaxed))?;
            NonNull::new(left.swap(null_mut(), Ordering::Acquire))
        })
    }

    /// Leaves a cache to the next thread, if it holds little and there is room; else does as [`Registry::detach`].
    ///
    /// # Safety
    /// As for [`Registry::detach`].
    pub unsafe fn leave<O: Os>(&self, supply: &Supply<O>, bins: &Bins, cache: NonNull<Cache>) {
        let is_kept = |left: &AtomicPtr<Cache>| {
            let (free, order) = (null_mut(), Ordering::Relaxed);
            left.load(order).is_null() && left.compare_exchange(free, cache.as_ptr(), Ordering::Release, order).is_ok()
        };
        // SAFETY: the calling thread owns the cache (fn contract), and has entered it where that is asked for.
        unsafe {
            let its = cache.as_ref();
            let can_be_left = its.enter() == Entered::Mine && {
                its.check_newest(supply.os);
                let can_be_left = its.can_be_left();
                its.leave();
                can_be_left
            };
            if !can_be_left || !self.left.iter().any(is_kept) {
                self.detach(supply, bins, cache);
            }
        }
    }

    fn is_left(&self, cache: &Cache) -> bool {
        self.left.iter().any(|left| core::ptr::eq(left.load(Ordering::Relaxed), cache))
    }

    /// Caches that have none.
    fn count_left(&self) -> usize {
        self.left.iter().filter(|left| !left.load(Ordering::Relaxed).is_null()).count()
    }

    /// In the child of a fork: they are in the list like those of the parent's threads.
    fn forget_left(&self) {
        self.left.iter().for_each(|left| left.store(null_mut(), Ordering::Relaxed));
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
    pub fn drain<O: Os>(&self, supply: &Supply<O>, bins: &Bins, all: bool, own: Option<&Cache>) -> Drained {
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
            let is_left = |cache: &Cache| self.is_left(cache);
            begun = caches.drain_step(supply, bins, own, drain, &mut drained, is_left);
            drop(caches);
            caches = self.list.lock(supply.os);
        }
    }

    /// Bytes in all caches that can be looked at, and the number of threads' caches.
    pub fn bytes<O: Os>(&self, os: &O, own: Option<&Cache>) -> (usize, usize) {
        let mut bytes = 0;
        self.by_cache(os, own, |_, more, _| bytes += more);
        (bytes, self.count(os))
    }

    /// Tells of each cache the bytes in it, 0 where it cannot be looked at, and whether it is a thread's.
    pub fn by_cache<O: Os>(&self, os: &O, own: Option<&Cache>, mut tell: impl FnMut(&Cache, usize, bool)) {
        self.for_each_seized(os, own, |cache, taken| {
            // SAFETY: seized by `for_each_seized`, or entered by the caller.
            let bytes = if taken { unsafe { cache.bytes() } } else { 0 };
            tell(cache, bytes, !cache.explicit && !self.is_left(cache));
        });
    }

    /// Number of threads' caches.
    pub fn count<O: Os>(&self, os: &O) -> usize {
        let threads = self.list.lock(os).count;
        threads.saturating_sub(self.count_left())
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
    fn for_each_seized<O: Os>(&self, os: &O, own: Option<&Cache>, mut work: impl FnMut(&Cache, bool)) {
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
    /// A step of a drain from the cursor on; `drain` is that of the cache there. What has begun of a drain at the
    /// new cursor comes back.
    fn drain_step<O: Os>(
        &mut self,
        supply: &Supply<O>,
        bins: &Bins,
        own: Option<&Cache>,
        mut drain: Drain,
        drained: &mut Drained,
        is_left: impl Fn(&Cache) -> bool,
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
            if is_left(cache) {
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
