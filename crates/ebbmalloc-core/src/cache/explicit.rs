//! Explicit arenas: regions and bins apart from the heap's own, made and ended on request. A block of one
//! is found by its address, in slow paths alone: it lies in no region of the heap's own arena.
//!
//! An explicit arena is an [`Arena`] with the bins of one shard. Everything below works on it as on the
//! heap's own, with a kernel that knows where its address space comes from
//! ([`OwnSpace`](crate::arena::own_space::OwnSpace)). Its memory is never unmade, only used again, so
//! that a look-up needs no lock.
//!
//! What always holds: slots of an explicit arena are in no cache but those that are on it. (Such a cache
//! may hold slots of the heap's own arena as well: the fast path of free does not ask.)

use super::transfer::Shard;
use crate::arena::Arena;
use crate::arena::granule::Fill;
use crate::arena::hooks::ExtentHooks;
use crate::arena::labels::Labels;
use crate::arena::own_space::OwnSpace;
use crate::arena::owner_map::OwnerMap;
use crate::base::lock::{Lock, Rank};
use crate::base::metadata::Metadata;
use crate::base::purged::Purged;
use crate::os::Os;
use crate::size::CLASSES;
use crate::slab::bin::{Bin, Supply};
use crate::slab::slab::{Shape, Slab};
use crate::slab::sweep::Sweep;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering,
};

/// The shard of a slab that belongs to an explicit arena.
pub const EXPLICIT: u8 = u8::MAX;
/// Explicit arenas at most: with the shards, what an index of 12 bits can name.
pub const MOST: usize = 4094 - super::transfer::SHARDS;

/// See the module.
pub struct ExplicitArena {
    /// Its regions and extents.
    pub arena: Arena,
    bins: Shard,
    /// Its place among the explicit arenas.
    pub place: u16,
    state: AtomicU8,
    /// The next that is free to be used again, plus one. Under the table's lock.
    next_free: AtomicU32,
    /// See there.
    pub labels: Labels,
    /// See [`ExplicitArena::grow_limit`]. Relaxed.
    grow_limit: AtomicUsize,
    /// The program's hooks, or null. Written when the arena is made, and on request; release, which
    /// pairs with the acquire of an operation.
    hooks: AtomicPtr<ExtentHooks>,
    /// How long memory may stay idle; see [`ExplicitArena::decay_ms`]. Relaxed.
    decay_ms: AtomicI64,
    /// Threads that are on it. Relaxed: a count.
    threads: AtomicUsize,
    /// Nothing was done with it since a pass that left nothing to do. Relaxed: a pass that misses an
    /// operation is followed by another.
    quiet: AtomicBool,
    /// The tick at which an operation last purged it, where passes do not. Relaxed.
    tended: AtomicU32,
}

/// A [`ExplicitArena::grow_limit`] that is none.
const UNLIMITED: usize = usize::MAX / 2 + 1;

const UNUSED: u8 = 0;
const LIVE: u8 = 1;
const ENDING: u8 = 2;

impl ExplicitArena {
    /// Makes one, not live yet.
    ///
    /// # Safety
    /// `at` is good for it and the caller's alone.
    unsafe fn make(at: NonNull<Self>, place: u16) {
        let at = at.as_ptr();
        // Part by part: a whole one would be much for a thread's stack.
        // SAFETY: the caller's promise.
        unsafe {
            (&raw mut (*at).arena).write(Arena::new());
            for class in 0..=CLASSES {
                (&raw mut (*at).bins)
                    .cast::<super::transfer::PaddedBin>()
                    .add(class)
                    .write(super::transfer::PaddedBin(Bin::new()));
            }
            (&raw mut (*at).place).write(place);
            (&raw mut (*at).state).write(AtomicU8::new(UNUSED));
            (&raw mut (*at).next_free).write(AtomicU32::new(0));
            (&raw mut (*at).labels).write(Labels::new());
            (&raw mut (*at).grow_limit).write(AtomicUsize::new(UNLIMITED));
            (&raw mut (*at).hooks).write(AtomicPtr::new(null_mut()));
            (&raw mut (*at).decay_ms).write(AtomicI64::new(0));
            (&raw mut (*at).threads).write(AtomicUsize::new(0));
            (&raw mut (*at).quiet).write(AtomicBool::new(true));
            (&raw mut (*at).tended).write(AtomicU32::new(0));
        }
    }

    /// The bin of a class.
    pub fn bin(&self, class: usize) -> &Bin {
        &self.bins[class].0
    }

    /// All bins.
    pub fn bins(&self) -> impl Iterator<Item = (usize, &Bin)> {
        (1..=CLASSES).map(|class| (class, self.bin(class)))
    }

    /// What [`Cache::home`](super::cache::Cache::home) says of a cache that is on this arena.
    pub fn home(&self) -> u16 {
        self.place + 1
    }

    /// Whether it is there to be used.
    pub fn is_live(&self) -> bool {
        // Acquire pairs with the release of `create`.
        self.state.load(Ordering::Acquire) == LIVE
    }

    /// The program's hooks; null for none.
    pub fn hooks(&self) -> *mut ExtentHooks {
        self.hooks.load(Ordering::Acquire)
    }

    /// Sets other hooks; returns those before. Address space that there is goes back by the new ones.
    pub fn set_hooks(&self, hooks: *mut ExtentHooks) -> *mut ExtentHooks {
        self.hooks.swap(hooks, Ordering::AcqRel)
    }

    /// The longest that memory stays idle, in milliseconds: 0 goes at once, negative never.
    pub fn decay_ms(&self) -> i64 {
        self.decay_ms.load(Ordering::Relaxed)
    }

    /// Sets [`ExplicitArena::decay_ms`].
    pub fn set_decay_ms(&self, decay_ms: i64) {
        self.decay_ms.store(decay_ms, Ordering::Relaxed);
        self.quiet.store(false, Ordering::Relaxed);
    }

    /// The most address space that is reserved at a time beyond what is needed.
    pub fn grow_limit(&self) -> usize {
        self.grow_limit.load(Ordering::Relaxed)
    }

    /// Sets [`ExplicitArena::grow_limit`].
    pub fn set_grow_limit(&self, bytes: usize) {
        self.grow_limit.store(bytes, Ordering::Relaxed);
    }

    /// Threads that are on it.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Counts a thread more or less.
    pub fn count_threads(&self, change: isize) {
        self.threads.fetch_add(change as usize, Ordering::Relaxed);
    }

    /// In a child of fork, whose threads are fewer.
    pub fn recount_threads(&self, threads: usize) {
        self.threads.store(threads, Ordering::Relaxed);
    }

    /// Whether an operation should purge it: its hooks may not be called by the purger's thread, and it
    /// has not been looked at since the tick before `tick`; or nothing may stay idle.
    pub fn is_due(&self, tick: u32, freed: bool) -> bool {
        if self.decay_ms() == 0 {
            return freed;
        }
        self.decay_ms() > 0
            && !self.hooks().is_null()
            && self.tended.swap(tick, Ordering::Relaxed) != tick
    }

    /// One pass over its slabs and extents; with `force` everything free goes.
    pub fn purge<'a, O: Os>(&'a self, supply: &'a Supply<'a, O>, force: bool) -> Purged {
        if self.quiet.swap(true, Ordering::Relaxed) {
            return Purged::default();
        }
        let mut purged = self.sweep(supply, force);
        purged.add(self.arena.purge(supply.os, supply.tick, force));
        if purged.more || purged.refused_bytes > 0 {
            self.quiet.store(false, Ordering::Relaxed);
        }
        purged
    }

    /// The pages inside live slabs. Apart, for the stack that it takes.
    #[inline(never)]
    fn sweep<'a, O: Os>(&'a self, supply: &'a Supply<'a, O>, force: bool) -> Purged {
        let mut sweep = Sweep::new(supply, force);
        for (class, bin) in self.bins() {
            sweep.bin(bin, class);
        }
        sweep.finish()
    }

    /// Takes every block back, whoever has it; then it is as new, but for its address space.
    ///
    /// # Safety
    /// Nobody uses a block of this arena or calls anything for it meanwhile, no cache holds a slot of
    /// it, and no pass is under way.
    pub unsafe fn reset<O: Os>(&self, supply: &Supply<O>) {
        for (_, bin) in self.bins() {
            // SAFETY: all slabs are taken from the arena below.
            unsafe { bin.lock(supply.os).forget_slabs() };
        }
        // SAFETY: the caller's promise, and the bins know no slab any more.
        unsafe {
            self.arena.free_everything(supply.os, supply.tick, |head| {
                let shape = Shape::new((*head).class as usize, supply.page_shift);
                Slab(head).destroy(supply.os, supply.metadata, shape);
                match (*head).resident {
                    0 => Fill::Clean,
                    _ => Fill::Dirty,
                }
            });
        }
        self.quiet.store(false, Ordering::Relaxed);
    }
}

/// The explicit arenas of a heap.
pub struct ExplicitArenas {
    /// By place; null up to the first. Published with release, which pairs with the acquire of a look-up.
    table: AtomicPtr<Table>,
    map: OwnerMap,
    ends: Lock<Ends>,
    /// Places that have ever been used; written under the lock, with release after the place itself.
    count: AtomicUsize,
    /// Index of the first as the program knows it. Written under the lock before the first is made.
    first_index: AtomicU32,
}

type Table = [AtomicPtr<ExplicitArena>; MOST];

struct Ends {
    /// The one that ended last, plus one.
    free: u32,
}

impl ExplicitArenas {
    /// None.
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            table: AtomicPtr::new(null_mut()),
            map: OwnerMap::new(),
            ends: Lock::new(Rank::Arenas, Ends { free: 0 }),
            count: AtomicUsize::new(0),
            first_index: AtomicU32::new(0),
        }
    }

    /// None (loom's cells are not const).
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self {
            table: AtomicPtr::new(null_mut()),
            map: OwnerMap::new(),
            ends: Lock::new(Rank::Arenas, Ends { free: 0 }),
            count: AtomicUsize::new(0),
            first_index: AtomicU32::new(0),
        }
    }

    /// Places that have been used so far: the arenas that there are, and those that ended.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The live arena that a cache's [`home`](super::cache::Cache::home) names.
    #[inline]
    pub fn get(&self, home: u16) -> Option<&ExplicitArena> {
        match home {
            0 => None,
            home => self.at(home as usize - 1).filter(|arena| arena.is_live()),
        }
    }

    /// The live arena that has `address`.
    #[inline]
    pub fn find(&self, address: usize) -> Option<&ExplicitArena> {
        let owner = self.map.owner(address)?;
        self.get(owner + 1)
    }

    fn at(&self, place: usize) -> Option<&ExplicitArena> {
        if place >= self.count() {
            return None;
        }
        // SAFETY: null or a table that stays.
        let table = unsafe { self.table.load(Ordering::Acquire).as_ref() }?;
        // SAFETY: null or an arena that stays.
        unsafe { table[place].load(Ordering::Acquire).as_ref() }
    }

    /// The live arenas.
    pub fn live(&self) -> impl Iterator<Item = &ExplicitArena> {
        (1..=self.count()).filter_map(|home| self.get(home as u16))
    }

    /// All that were ever made: for locks.
    fn all(&self) -> impl Iterator<Item = &ExplicitArena> {
        (0..self.count()).filter_map(|place| self.at(place))
    }

    /// Calls `work` with what a bin or an extent of `arena` is given to work with. What was freed and
    /// what has grown meanwhile counts for the heap's own arena, which is what others look at.
    pub fn with<O: Os, R>(
        &self,
        arena: &ExplicitArena,
        supply: &Supply<O>,
        work: impl FnOnce(&Supply<OwnSpace<'_, O>>) -> R,
    ) -> R {
        let space = OwnSpace {
            os: supply.os,
            metadata: supply.metadata,
            map: &self.map,
            owner: arena.place,
            index: self.index_of(arena),
            grow_limit: arena.grow_limit(),
            hooks: arena.hooks(),
        };
        let result = work(&Supply {
            os: &space,
            arena: &arena.arena,
            metadata: supply.metadata,
            page_shift: supply.page_shift,
            tick: supply.tick,
        });
        if supply.arena.take_over(&arena.arena) {
            arena.quiet.store(false, Ordering::Relaxed);
        }
        result
    }

    /// Index of an arena as the program knows it.
    pub fn index_of(&self, arena: &ExplicitArena) -> u32 {
        self.first_index.load(Ordering::Relaxed) + u32::from(arena.place)
    }

    /// Makes an arena, in the place of the one that ended last if one did. `first_index` is how many
    /// indices others have. `None` if there is no memory, or no index.
    pub fn create<O: Os>(
        &self,
        os: &O,
        metadata: &Metadata,
        first_index: u32,
        hooks: *mut ExtentHooks,
        decay_ms: i64,
    ) -> Option<&ExplicitArena> {
        let mut ends = self.ends.lock(os);
        let arena = match ends.free {
            0 => self.make(os, metadata, first_index)?,
            free => self.at(free as usize - 1)?,
        };
        if ends.free != 0 {
            ends.free = arena.next_free.load(Ordering::Relaxed);
        }
        arena.hooks.store(hooks, Ordering::Release);
        arena.set_decay_ms(decay_ms);
        arena.set_grow_limit(UNLIMITED);
        // Release pairs with the acquire of `is_live`.
        arena.state.store(LIVE, Ordering::Release);
        Some(arena)
    }

    /// One in a place of its own, under the lock.
    fn make<O: Os>(&self, os: &O, metadata: &Metadata, first_index: u32) -> Option<&ExplicitArena> {
        let place = self.count.load(Ordering::Relaxed);
        if place == MOST {
            return None;
        }
        if place == 0 {
            self.first_index.store(first_index, Ordering::Relaxed);
        }
        let mut table = self.table.load(Ordering::Relaxed);
        if table.is_null() {
            table = metadata
                .allocate(os, size_of::<Table>(), true)?
                .cast()
                .as_ptr();
            // SAFETY: the piece is ours and long enough; zeros are null pointers.
            unsafe { table.write_bytes(0, 1) };
            self.table.store(table, Ordering::Release);
        }
        let piece = metadata.allocate(os, size_of::<ExplicitArena>(), true)?;
        let arena = piece.cast::<ExplicitArena>();
        // SAFETY: the piece is ours, long enough and aligned to its rounded size; it stays.
        unsafe {
            ExplicitArena::make(arena, place as u16);
            (*table)[place].store(arena.as_ptr(), Ordering::Release);
            self.count.store(place + 1, Ordering::Release);
            Some(arena.as_ref())
        }
    }

    /// Says that an arena ends: nobody finds it any more. False if it does already.
    pub fn begin_end(&self, arena: &ExplicitArena) -> bool {
        // Acquire pairs with the release of `create`.
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        arena
            .state
            .compare_exchange(LIVE, ENDING, success, failure)
            .is_ok()
    }

    /// Gives an arena's address space back and its place to the next that is made.
    ///
    /// # Safety
    /// It was [reset](ExplicitArena::reset) after [`ExplicitArenas::begin_end`], and no pass is under way.
    pub unsafe fn end<O: Os>(&self, arena: &ExplicitArena, supply: &Supply<O>) {
        // SAFETY: the caller's promise: nobody has a block of it, and nobody finds it.
        self.with(arena, supply, |supply| unsafe {
            arena.arena.release_regions(supply.os);
        });
        let mut ends = self.ends.lock(supply.os);
        arena.state.store(UNUSED, Ordering::Release);
        arena.next_free.store(ends.free, Ordering::Relaxed);
        ends.free = u32::from(arena.place) + 1;
    }

    /// Fork, before: takes the lock of the table, which keeps new ones away.
    pub fn freeze_table<O: Os>(&self, os: &O) {
        self.ends.freeze(os);
    }

    /// Fork, before: takes the locks of all bins. Those of the arenas follow, by their rank.
    pub fn freeze_bins<O: Os>(&self, os: &O) {
        for arena in self.all() {
            for (_, bin) in arena.bins() {
                bin.raw().freeze(os);
            }
        }
    }

    /// Fork, before: takes the locks of all arenas.
    pub fn freeze_arenas<O: Os>(&self, os: &O) {
        for arena in self.all() {
            arena.arena.freeze(os);
        }
    }

    /// Fork, after: gives all these locks back; in the child the slabs are the parent's.
    ///
    /// # Safety
    /// The calling thread, or its parent's, called the three above.
    pub unsafe fn thaw<O: Os>(&self, os: &O, child: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            for arena in self.all() {
                arena.arena.thaw(os);
                for (_, bin) in arena.bins() {
                    if child {
                        bin.raw().frozen_value(|slabs| slabs.leave_to_parent());
                    }
                    bin.raw().thaw(os);
                }
            }
            self.ends.thaw(os);
        }
    }

    /// See [`Lock::reset`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn reset_locks(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            for arena in self.all() {
                arena.arena.reset();
                for (_, bin) in arena.bins() {
                    bin.raw().reset();
                }
            }
            self.ends.reset();
        }
    }
}
