//! The bins of all shards, as caches and the slow paths meet them: slots are taken from a shard's own bins,
//! borrowed where those are empty, and put back into the bins they came from, the thread that frees them.

use super::cache::Cache;
use super::explicit::{EXPLICIT, ExplicitArena};
use super::explicit_table::ExplicitArenas;
pub use super::shard::{PaddedBin, SHARDS, Shard};
use super::stack::Entry;
use crate::arena::granule::Granule;
use crate::base::corrupt::{Corruption, corruption};
use crate::base::exact::u32_of;
use crate::base::lock::Wait;
use crate::os::Os;
use crate::size::CLASSES;
use crate::slab::bin::{Age, Bin, Returned, Supply};
use crate::slab::lend::Run;
use crate::slab::shape::mask;

/// Slots that are put back at once, at most: a bit for each.
const BATCH: usize = 64;

/// All bins of a heap.
pub struct Bins {
    /// Those of the heap's own arena, by shard.
    pub shards: [Shard; SHARDS],
    /// The explicit arenas, each with bins of its own.
    pub explicit: ExplicitArenas,
}

impl Bins {
    /// No slab anywhere.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            shards: [const { [const { PaddedBin(Bin::new()) }; CLASSES + 1] }; SHARDS],
            explicit: ExplicitArenas::new(),
        }
    }

    /// No slab anywhere (loom's cells are not const).
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            shards: core::array::from_fn(|_| core::array::from_fn(|_| PaddedBin(Bin::new()))),
            explicit: ExplicitArenas::new(),
        }
    }

    /// The bin of a class in a shard.
    #[inline]
    pub fn get(&self, shard: usize, class: usize) -> &Bin {
        &self.shards[shard][class].0
    }

    /// Fills `out` with slots of `class` for a cache, from the arena that it is on; returns how many.
    pub(super) fn refill<O: Os>(&self, supply: &Supply<O>, cache: &Cache, class: usize, out: &mut [Entry]) -> usize {
        match self.explicit.get(cache.home()) {
            Some(arena) => self
                .explicit
                .with(arena, supply, |supply| arena.bin(class).take(supply, class, EXPLICIT, out, Wait::Yes)),
            None => {
                let shard = cache.shard();
                let bin = self.get(shard as usize, class);
                let mut got = bin.take_without_growth(supply, class, shard, out);
                if got == 0 {
                    got = self.borrow(supply, class, shard, out);
                }
                if got == 0 {
                    got = bin.take(supply, class, shard, out, Wait::Yes);
                }
                got
            }
        }
    }

    /// Fills `out` with blocks that fit `class`, made of free slots of smaller classes on pages that
    /// are resident ([`lend`](crate::slab::lend)); returns how many.
    fn borrow<O: Os>(&self, supply: &Supply<O>, class: usize, shard: u8, out: &mut [*mut u8]) -> usize {
        let mut lent = 0;
        // The largest first: a block of few slots.
        for lender in (1..class).rev() {
            if let Some(run) = Run::of(lender, class) {
                let bin = self.get(shard as usize, lender);
                lent += bin.lend(supply, lender, run, &mut out[lent..]);
                if lent == out.len() {
                    break;
                }
            }
        }
        lent
    }

    /// Takes back a block that `borrow` made, in a slab whose head is `head`. Without waiting,
    /// returns false if a lock is held.
    ///
    /// # Safety
    /// The block lies in the slab.
    pub unsafe fn take_back<O: Os>(&self, supply: &Supply<O>, head: *mut Granule, block: Entry, wait: Wait) -> bool {
        // SAFETY: the block lies in the slab (fn contract), whose head is valid; what a slab's descriptor says does not change.
        unsafe {
            let (shard, class) = ((*head).shard as usize % SHARDS, (*head).class as usize);
            self.get(shard, class).take_back(supply, class, head, block as usize, wait)
        }
    }

    /// Puts slots of `class` back into the bins they came from; ends the process if one of them is
    /// free already or no slot. Without waiting, only as far as locks are free; returns how many
    /// were put back.
    ///
    /// # Safety
    /// The byte map says `class` for each of them.
    pub unsafe fn put<O: Os>(&self, supply: &Supply<O>, class: usize, slots: &[Entry], age: Age, wait: Wait) -> usize {
        let mut done = 0;
        for chunk in slots.chunks(BATCH) {
            let mut returned = Returned { slots: chunk, left: mask(0, u32_of(chunk.len())) };
            // Most often all are of one bin.
            while returned.left != 0 {
                // SAFETY: the fn contract.
                if !unsafe { self.put_some(supply, class, &mut returned, age, wait) } {
                    return done + chunk.len() - returned.left.count_ones() as usize;
                }
            }
            done += chunk.len();
        }
        done
    }

    /// Puts back the first slot that is not back yet, and all others of the same bin. False if a lock was held.
    ///
    /// # Safety
    /// As for [`Bins::put`]; there is such a slot.
    unsafe fn put_some<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        returned: &mut Returned,
        age: Age,
        wait: Wait,
    ) -> bool {
        let first = returned.slots[returned.left.trailing_zeros() as usize];
        let slab = self.slab_of(supply, first);
        // SAFETY: `slab_of` returned a valid descriptor. The byte map says `class` (fn contract); what was lent is of another.
        unsafe {
            if (*slab).class as usize != class {
                let taken = self.take_back(supply, slab, first, wait);
                returned.left &= returned.left - u64::from(taken);
                return taken;
            }
            let bin = (class, (*slab).shard);
            match self.owner_of(slab, first) {
                Some(arena) => {
                    self.explicit.with(arena, supply, |supply| arena.bin(class).put(supply, bin, returned, age, wait))
                }
                None => {
                    let own = self.get(bin.1 as usize % SHARDS, class);
                    own.put(supply, bin, returned, age, wait)
                }
            }
        }
    }

    fn slab_of<O: Os>(&self, supply: &Supply<O>, slot: Entry) -> *mut Granule {
        let granule = supply.arena.granule_of(slot as usize).or_else(|| {
            let arena = self.explicit.find(slot as usize)?;
            arena.arena.granule_of(slot as usize)
        });
        match granule {
            // SAFETY: every granule in a region has a descriptor; one in a slab knows its head.
            Some(granule) if unsafe { !(*granule).head.is_null() } => unsafe { (*granule).head },
            _ => corruption(supply.os, Corruption::ForeignPointer, slot as usize),
        }
    }

    /// The explicit arena that a slot's slab belongs to.
    ///
    /// # Safety
    /// The slot lies in the slab.
    unsafe fn owner_of(&self, slab: *mut Granule, slot: Entry) -> Option<&ExplicitArena> {
        // SAFETY: the descriptor of a slab.
        if unsafe { (*slab).shard } != EXPLICIT {
            return None;
        }
        self.explicit.find(slot as usize)
    }
}
