//! The table of a heap's explicit arenas: makes and ends them, and finds them by place, by address, or for a cache. Look-ups
//! take no lock.

use super::explicit::{ENDING, ExplicitArena, LIVE, UNLIMITED, UNUSED};
use super::shard::SHARDS;
use crate::arena::own_space::OwnSpace;
use crate::arena::owner_map::OwnerMap;
use crate::base::exact::u16_of;
use crate::base::lock::{Lock, Rank, Wait};
use crate::base::metadata::Metadata;
use crate::base::sync::initialiser;
use crate::os::Os;
use crate::os::hooks::ExtentHooks;
use crate::slab::bin::Supply;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Most explicit arenas: with the shards, as many as an index of 12 bits can name.
pub const MOST: usize = 4094 - SHARDS;

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
    /// Where in them the address of the table is.
    pub const TABLE: usize = core::mem::offset_of!(Self, table);
    /// Where in them the number of places is that have been used.
    pub const COUNT: usize = core::mem::offset_of!(Self, count);

    initialiser! {
        /// None.
        pub fn new() -> Self {
            Self {
                table: AtomicPtr::new(null_mut()),
                map: OwnerMap::new(),
                ends: Lock::new(Rank::Arenas, Ends { free: 0 }),
                count: AtomicUsize::new(0),
                first_index: AtomicU32::new(0),
            }
        }
    }

    /// Places that have been used so far: by arenas that exist, and by ended ones.
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
        (1..=self.count()).filter_map(|home| self.get(u16_of(home)))
    }

    /// All arenas that were ever made, for taking their locks.
    fn all(&self) -> impl Iterator<Item = &ExplicitArena> {
        (0..self.count()).filter_map(|place| self.at(place))
    }

    /// Calls `work` with the [`Supply`] of `arena`. Memory that is freed or taken meanwhile is counted in the heap's own
    /// arena, whose counters the purger reads.
    pub fn with<O: Os, R>(
        &self,
        arena: &ExplicitArena,
        supply: &Supply<O>,
        work: impl FnOnce(&Supply<OwnSpace<'_, O>>) -> R,
    ) -> R {
        let space = OwnSpace {
            os: supply.os,
            own: supply.arena,
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
            aligned_shard: None,
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
        arena.set_hooks(os, hooks, self.index_of(arena));
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
            table = metadata.allocate(os, size_of::<Table>(), Wait::Yes)?.cast().as_ptr();
            // SAFETY: the piece is ours and long enough; zeros are null pointers.
            unsafe { table.write_bytes(0, 1) };
            self.table.store(table, Ordering::Release);
        }
        let piece = metadata.allocate(os, size_of::<ExplicitArena>(), Wait::Yes)?;
        let arena = piece.cast::<ExplicitArena>();
        // SAFETY: the piece is ours, long enough and aligned to its rounded size; it stays.
        unsafe {
            ExplicitArena::make(arena, u16_of(place));
            (*table)[place].store(arena.as_ptr(), Ordering::Release);
            self.count.store(place + 1, Ordering::Release);
            Some(arena.as_ref())
        }
    }

    /// Begins an arena's end: look-ups no longer find it. False if it is ending already.
    pub fn begin_end(&self, arena: &ExplicitArena) -> bool {
        // Acquire pairs with the release of `create`.
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        arena.state.compare_exchange(LIVE, ENDING, success, failure).is_ok()
    }

    /// Returns an arena's address space, and keeps its place for the next arena that is made.
    ///
    /// # Safety
    /// It was [reset](ExplicitArena::reset) after [`ExplicitArenas::begin_end`], and no pass is under way.
    pub unsafe fn end<O: Os>(&self, arena: &ExplicitArena, supply: &Supply<O>) {
        // SAFETY: the arena was reset after its end began (fn contract): no thread has a block of it, and no thread finds it.
        self.with(arena, supply, |supply| unsafe {
            arena.arena.release_regions(supply.os);
        });
        let mut ends = self.ends.lock(supply.os);
        arena.state.store(UNUSED, Ordering::Release);
        arena.next_free.store(ends.free, Ordering::Relaxed);
        ends.free = u32::from(arena.place) + 1;
    }

    /// Takes the lock of the table, as [`Lock::freeze`] says.
    #[cfg(test)]
    pub fn freeze_table<O: Os>(&self, os: &O) {
        self.ends.freeze(os);
    }

    /// Takes the locks of all bins. Those of the arenas follow, by their rank.
    #[cfg(test)]
    pub fn freeze_bins<O: Os>(&self, os: &O) {
        for arena in self.all() {
            for (_, bin) in arena.bins() {
                bin.raw().freeze(os);
            }
        }
    }

    /// Takes the locks of all arenas.
    #[cfg(test)]
    pub fn freeze_arenas<O: Os>(&self, os: &O) {
        for arena in self.all() {
            arena.arena.freeze(os);
        }
    }

    /// Releases all these locks.
    ///
    /// # Safety
    /// The calling thread called the three above.
    #[cfg(test)]
    pub unsafe fn thaw<O: Os>(&self, os: &O) {
        // SAFETY: the calling thread took all these locks (fn contract).
        unsafe {
            for arena in self.all() {
                arena.arena.thaw(os);
                for (_, bin) in arena.bins() {
                    bin.raw().thaw(os);
                }
            }
            self.ends.thaw(os);
        }
    }

    /// Whether no thread holds one of these locks.
    pub fn is_at_rest(&self) -> bool {
        let is_held = |arena: &ExplicitArena| arena.arena.is_held() || arena.bins().any(|(_, bin)| bin.raw().is_held());
        !self.ends.is_held() && !self.all().any(is_held)
    }

    /// See [`Slabs::abandon`](crate::slab::slabs::Slabs::abandon) and [`Extents::abandon`](crate::arena::extents::Extents::abandon).
    pub fn abandon<O: Os>(&self, os: &O) {
        for arena in self.all() {
            for (_, bin) in arena.bins() {
                bin.lock(os).abandon();
            }
            arena.arena.lock(os).abandon();
        }
    }

    /// See [`Lock::reset`](crate::base::lock::Lock::reset).
    ///
    /// # Safety
    /// As there.
    pub unsafe fn reset_locks(&self) {
        // SAFETY: no other thread of this process exists that could hold one (contract of `Lock::reset`).
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
