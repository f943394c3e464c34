//! Blocks of explicit arenas: requests that name one, or come from a thread that is on one, and all that can
//! be done with such a block. What happens to an arena as a whole is in `explicit_life`.

use super::{Access, Heap};
use crate::arena::granule::{Granule, Kind};
use crate::arena::own_space::OwnSpace;
use crate::base::corrupt::{Corruption, corruption};
use crate::base::exact::{u8_of, u32_of};
use crate::base::lock::Wait;
use crate::cache::bins::SHARDS;
use crate::cache::cache::Cache;
use crate::cache::explicit::{EXPLICIT, ExplicitArena};
use crate::os::Os;
use crate::os::hooks::ExtentHooks;
use crate::size::{CLASS, GRANULE, SMALL_MAX, class_aligned, class_of, is_possible};
use crate::slab::bin::{Age, Supply};
use core::ptr::null_mut;

/// Where in an explicit arena a block lives.
pub(super) enum PlaceIn {
    Slot(usize),
    Large(*mut Granule),
}

impl<O: Os> Heap<O> {
    /// Makes an explicit arena; see [`ExplicitArenas::create`](crate::cache::explicit_table::ExplicitArenas).
    pub fn create_arena(&self, hooks: *mut ExtentHooks, decay_ms: i64) -> Option<&ExplicitArena> {
        let first = u32_of(self.shards());
        let explicit = &self.parts.bins.explicit;
        explicit.create(&self.os, &self.metadata, first, hooks, decay_ms)
    }

    /// How many indices of arenas there are: shards, then explicit arenas, ended ones among them.
    pub fn arena_indices(&self) -> usize {
        self.shards() + self.parts.bins.explicit.count()
    }

    /// The live explicit arena of an index.
    pub fn explicit_arena(&self, index: usize) -> Option<&ExplicitArena> {
        let place = index.checked_sub(self.shards())?;
        self.parts.bins.explicit.get(u16::try_from(place + 1).ok()?)
    }

    /// The live explicit arenas.
    pub fn explicit_arenas(&self) -> impl Iterator<Item = &ExplicitArena> {
        self.parts.bins.explicit.live()
    }

    /// Index of an explicit arena.
    pub fn index_of(&self, arena: &ExplicitArena) -> usize {
        self.parts.bins.explicit.index_of(arena) as usize
    }

    /// Index of the arena that `address` lies in: large blocks of the heap's own count as the first
    /// shard's. `None` where there is no arena.
    pub fn arena_of(&self, address: usize) -> Option<usize> {
        if let Some(granule) = self.arena.granule_of(address) {
            // SAFETY: every granule of a region has a descriptor; a slab's are true in each.
            return unsafe {
                match (*granule).kind {
                    Kind::Slab | Kind::SlabTail => {
                        let head = (*granule).head;
                        ((*head).kind == Kind::Slab).then_some((*head).shard as usize)
                    }
                    Kind::Large | Kind::LargeTail => Some(0),
                    _ => None,
                }
            };
        }
        let arena = self.parts.bins.explicit.find(address)?;
        arena.arena.granule_of(address)?;
        Some(self.index_of(arena))
    }

    pub(super) fn home(&self, access: Access) -> Option<&ExplicitArena> {
        match access {
            Access::Cached(cache) | Access::Around(cache) => self.parts.bins.explicit.get(cache.home()),
            Access::Direct | Access::Nested | Access::Outside => None,
        }
    }

    /// The explicit arena that refills `cache`.
    pub fn arena_of_cache(&self, cache: &Cache) -> Option<&ExplicitArena> {
        self.parts.bins.explicit.get(cache.home())
    }

    /// Class of the slab of the explicit arena that `cache` is on, if `address` lies in one.
    #[inline]
    pub fn class_at_home(&self, cache: &Cache, address: usize) -> Option<usize> {
        let arena = self.parts.bins.explicit.get(cache.home())?;
        match arena.arena.class_of(address) {
            0 => None,
            class => Some(class),
        }
    }

    /// Whether what `access` allocates comes from `arena`.
    pub fn is_on(&self, access: Access, arena: &ExplicitArena) -> bool {
        self.home(access).is_some_and(|home| core::ptr::eq(home, arena))
    }

    /// Calls `work` with what the arena's bins and extents are given to work with.
    pub(super) fn with_arena<R>(&self, arena: &ExplicitArena, work: impl FnOnce(&Supply<OwnSpace<'_, O>>) -> R) -> R {
        self.parts.bins.explicit.with(arena, &self.supply(), work)
    }

    /// A block of at least `size` bytes aligned to `align` from where the thread is on, and whether it is
    /// known to read as zero. Null if there is no memory.
    pub fn allocate_chosen(&self, access: Access, size: usize, align: usize) -> (*mut u8, bool) {
        match class_aligned(size, align) {
            Some(_) => (self.allocate_aligned(access, size, align), false),
            None => self.allocate_large(access, size, align),
        }
    }

    /// The same from a shard, whatever the thread is on.
    pub fn allocate_in_shard(&self, shard: usize, access: Access, size: usize, align: usize) -> (*mut u8, bool) {
        let around = match access {
            Access::Nested | Access::Outside => access,
            _ => Access::Direct,
        };
        let Some(class) = class_aligned(size, align) else {
            return self.allocate_large(around, size, align);
        };
        let shard = self.shard_of_aligned(class, align).unwrap_or(u8_of(shard % SHARDS));
        let slot = self.take_slot(shard, class, access.wait());
        if !slot.is_null() {
            return (slot, false);
        }
        // The rest of the way, which returns what is idle first.
        (self.allocate_slot(around, class, align), false)
    }

    /// A block of at least `size` bytes aligned to `align`, in an explicit arena whatever the thread is
    /// on, and whether it is known to read as zero. Null if there is no memory.
    pub fn allocate_in(&self, arena: &ExplicitArena, access: Access, size: usize, align: usize) -> (*mut u8, bool) {
        match class_aligned(size, align) {
            Some(class) => (self.slot_in(arena, access, class), false),
            None => self.large_in(arena, access, size, align),
        }
    }

    /// A slot straight from the arena's bin.
    pub(super) fn slot_in(&self, arena: &ExplicitArena, access: Access, class: usize) -> *mut u8 {
        let wait = access.wait();
        let take = || {
            self.with_arena(arena, |supply| {
                let mut slot = [null_mut()];
                arena.bin(class).take(supply, class, EXPLICIT, &mut slot, wait);
                slot[0]
            })
        };
        let mut slot = take();
        if slot.is_null() && wait == Wait::Yes && self.relieve_for(arena, access) {
            slot = take();
        }
        self.tend(arena, access, false);
        slot
    }

    pub(super) fn large_in(&self, arena: &ExplicitArena, access: Access, size: usize, align: usize) -> (*mut u8, bool) {
        if !is_possible(size, align) {
            return (null_mut(), false);
        }
        let wait = access.wait();
        let take = || {
            self.with_arena(arena, |supply| {
                let tick = supply.tick;
                supply.arena.allocate_large(supply.os, size, align, tick, wait)
            })
        };
        let mut made = take();
        if made.is_none() && wait == Wait::Yes && self.relieve_for(arena, access) {
            made = take();
        }
        self.tend(arena, access, false);
        made.map_or((null_mut(), false), |block| (block.start as *mut u8, block.zero))
    }

    /// No memory: returns what may help. Of an arena with hooks that is its own idle memory alone: an
    /// empty pool of the program's is no reason to purge the process. False if one more try makes no sense.
    fn relieve_for(&self, arena: &ExplicitArena, access: Access) -> bool {
        if arena.hooks().is_null() {
            self.relieve(access.own());
            true
        } else {
            self.purge_arena(arena, true)
        }
    }

    /// Takes a block of an explicit arena back.
    ///
    /// # Safety
    /// As for [`Heap::free`].
    pub(super) unsafe fn free_in(&self, arena: &ExplicitArena, access: Access, block: *mut u8) {
        let wait = access.wait();
        let done = match self.place_in(arena, block as usize) {
            PlaceIn::Slot(class) => {
                let supply = self.supply();
                if let Access::Cached(cache) = access
                    && (cache.home() == arena.home() || cfg!(ebb_mutation = "home_slots"))
                {
                    // SAFETY: the access says that the cache is entered; the byte map says `class`.
                    unsafe { cache.push_or_flush(&supply, &self.parts.bins, class, block) };
                    true
                } else {
                    // SAFETY: the byte map says `class`.
                    unsafe { self.parts.bins.put(&supply, class, &[block], Age::Fresh, wait) == 1 }
                }
            }
            // SAFETY: `head` is the descriptor of the block's granule.
            PlaceIn::Large(head) => unsafe {
                self.forget_sample(head, wait)
                    && self.with_arena(arena, |supply| {
                        let tick = supply.tick;
                        supply.arena.free_large(supply.os, head, block as usize, tick, wait)
                    })
            },
        };
        if !done {
            // SAFETY: the block is the caller's and at least a pointer long.
            return unsafe { self.postpone(block) };
        }
        self.tend(arena, access, true);
    }

    /// # Safety
    /// As for [`Heap::usable_size`].
    pub(super) unsafe fn usable_size_in(&self, arena: &ExplicitArena, block: *const u8) -> usize {
        match self.place_in(arena, block as usize) {
            PlaceIn::Slot(class) => CLASS[class].size as usize,
            // SAFETY: `head` is the descriptor of the block's granule.
            PlaceIn::Large(head) => unsafe {
                let bytes = arena.arena.large_size(&self.os, head, block as usize);
                self.promised_bytes(head).unwrap_or(bytes)
            },
        }
    }

    /// A block of an explicit arena stays there, whatever the thread is on.
    ///
    /// # Safety
    /// As for [`Heap::reallocate`].
    pub(super) unsafe fn reallocate_in(
        &self,
        arena: &ExplicitArena,
        access: Access,
        block: *mut u8,
        size: usize,
    ) -> *mut u8 {
        // SAFETY: the block is live and the caller's (fn contract), and lies in this arena.
        let old = unsafe { self.usable_size_in(arena, block) };
        if let PlaceIn::Large(head) = self.place_in(arena, block as usize)
            && access.may_wait()
            && size > SMALL_MAX
        {
            // SAFETY: the block is live, so its descriptor is that of a large block.
            let moved = self.with_arena(arena, |supply| unsafe {
                let tick = supply.tick;
                self.forget_sample(head, Wait::Yes);
                if supply.arena.resize_large(supply.os, head, size, tick) {
                    return Some(block as usize);
                }
                if size <= old {
                    return None;
                }
                supply.arena.move_large(supply.os, head, size, tick)
            });
            if let Some(moved) = moved {
                self.tend(arena, access, true);
                return moved as *mut u8;
            }
        }
        let keeps = size <= old && size > old / 2 || size <= SMALL_MAX && CLASS[class_of(size)].size as usize == old;
        if keeps && old <= SMALL_MAX {
            return block;
        }
        let (new, _) = self.allocate_in(arena, access, size, 1);
        if !new.is_null() {
            // SAFETY: both blocks are live and at least this long, and they are not the same.
            unsafe {
                self.hand_over(block, new, old.min(size));
                self.free_in(arena, access, block);
            }
        }
        new
    }

    /// Where in the arena the block at `address` lives. Ends the process if it is nowhere.
    pub(super) fn place_in(&self, arena: &ExplicitArena, address: usize) -> PlaceIn {
        let class = arena.arena.class_of(address);
        if class != 0 {
            return PlaceIn::Slot(class);
        }
        let Some(granule) = arena.arena.granule_of(address) else {
            corruption(&self.os, Corruption::ForeignPointer, address);
        };
        // SAFETY: every granule of a region has a descriptor.
        match unsafe { (*granule).kind } {
            Kind::Large if address.is_multiple_of(GRANULE) => PlaceIn::Large(granule),
            kind => corruption(&self.os, kind.misuse(), address),
        }
    }
}
