//! The bins of all shards, as caches and the slow paths meet them: slots are taken from a shard's own bins,
//! borrowed where those are empty, and put back into the bins they came from, the thread that frees them.

use super::cache::Cache;
use super::explicit::{EXPLICIT, ExplicitArena};
use super::explicit_table::ExplicitArenas;
pub use super::shard::{PaddedBin, SHARDS, Shard};
use super::stack::Entry;
use crate::arena::granule::Granule;
use crate::base::corrupt::{Corruption, corruption};
use crate::base::lock::Wait;
use crate::os::Os;
use crate::size::{CLASS, CLASSES, GRANULE};
use crate::slab::bin::{Age, Bin, Returned, Supply};
use crate::slab::lend::Run;
use core::mem::MaybeUninit;

/// Slots that are put back with one look-up of their slabs.
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
    pub(super) fn refill<O: Os>(
        &self,
        supply: &Supply<O>,
        cache: &Cache,
        class: usize,
        out: &mut [Entry],
    ) -> usize {
        match self.explicit.get(cache.home()) {
            Some(arena) => self.explicit.with(arena, supply, |supply| {
                arena.bin(class).take(supply, class, EXPLICIT, out, Wait::Yes)
            }),
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
    fn borrow<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        shard: u8,
        out: &mut [*mut u8],
    ) -> usize {
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
    pub unsafe fn take_back<O: Os>(
        &self,
        supply: &Supply<O>,
        head: *mut Granule,
        block: Entry,
        wait: Wait,
    ) -> bool {
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
    pub unsafe fn put<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        slots: &[Entry],
        age: Age,
        wait: Wait,
    ) -> usize {
        let mut done = 0;
        for mut chunk in slots.chunks(BATCH) {
            let mut found = [const { MaybeUninit::<Returned>::uninit() }; BATCH];
            let mut runs = 0;
            // Whether all slabs are of `class`, and of one shard.
            let (mut own, mut in_one_bin, mut shard) = (true, true, None);
            while let [first, ..] = *chunk {
                let slab = self.slab_of(supply, first);
                // SAFETY: `slab_of` returned a valid descriptor. What was lent is of another class.
                let (start, its_class, its_shard) =
                    unsafe { ((*slab).base, (*slab).class as usize, (*slab).shard) };
                let start = start - start % GRANULE;
                let bytes = CLASS[its_class].granules as usize * GRANULE;
                // Most often the next slot is in the same slab.
                let is_elsewhere = |&slot: &Entry| (slot as usize).wrapping_sub(start) >= bytes;
                let same = chunk[1..].iter().position(is_elsewhere);
                let (slots, rest) = chunk.split_at(same.map_or(chunk.len(), |at| at + 1));
                found[runs].write(Returned { slab, slots });
                runs += 1;
                chunk = rest;
                own &= its_class == class;
                in_one_bin &= *shard.get_or_insert(its_shard) == its_shard;
            }
            // SAFETY: the first `runs` places were written just now.
            let found: &mut [Returned] =
                unsafe { core::slice::from_raw_parts_mut(found.as_mut_ptr().cast(), runs) };
            let put = match shard {
                Some(shard) if own && in_one_bin && shard != EXPLICIT => {
                    let bin = self.get(shard as usize % SHARDS, class);
                    // SAFETY: the byte map says `class`, the descriptors say `shard`.
                    match unsafe { bin.put(supply, class, found, age, wait) } {
                        true => Ok(count(found)),
                        false => Err(0),
                    }
                }
                // SAFETY: the byte map says `class` for all.
                _ => unsafe { self.put_mixed(supply, class, found, age, wait) },
            };
            match put {
                Ok(all) => done += all,
                Err(some) => return done + some,
            }
        }
        done
    }

    /// [`Bins::put`] for slots of several bins, and for blocks that were lent. How many were put back, as an error if a lock
    /// was held before the end.
    ///
    /// # Safety
    /// As for [`Bins::put`], and the slabs are the ones that the slots lie in.
    #[cold]
    unsafe fn put_mixed<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        found: &mut [Returned],
        age: Age,
        wait: Wait,
    ) -> Result<usize, usize> {
        let mut done = 0;
        // SAFETY: the fn contract: the descriptors are those of slabs.
        let own = partition(found, |run| unsafe { (*run.slab).class as usize == class });
        let (mut rest, lent) = found.split_at_mut(own);
        for run in lent {
            for &block in run.slots {
                // SAFETY: the block lies in the slab.
                if !unsafe { self.take_back(supply, run.slab, block, wait) } {
                    return Err(done);
                }
                done += 1;
            }
        }
        while let [first, ..] = rest {
            // SAFETY: the descriptor of a slab.
            let shard = unsafe { (*first.slab).shard };
            let owner = self.owner_of(first);
            let same = partition(rest, |run| {
                // SAFETY: each run leads to the descriptor of a slab.
                let same_shard = unsafe { (*run.slab).shard } == shard;
                same_shard && (owner.is_none() || is_same(owner, self.owner_of(run)))
            });
            let (now, later) = rest.split_at_mut(same);
            let put = match owner {
                // SAFETY: the byte map says `class`, the map of owners says whose.
                Some(arena) => self.explicit.with(arena, supply, |supply| unsafe {
                    arena.bin(class).put(supply, class, now, age, wait)
                }),
                // SAFETY: the byte map says `class`, the descriptors say `shard`.
                None => unsafe {
                    self.get(shard as usize % SHARDS, class).put(supply, class, now, age, wait)
                },
            };
            if !put {
                return Err(done);
            }
            done += count(now);
            rest = later;
        }
        Ok(done)
    }

    /// The slab that a slot lies in.
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

    /// The explicit arena that the slots' slab belongs to.
    fn owner_of(&self, run: &Returned) -> Option<&ExplicitArena> {
        // SAFETY: the descriptor of a slab.
        if unsafe { (*run.slab).shard } != EXPLICIT {
            return None;
        }
        self.explicit.find(run.slots[0] as usize)
    }
}

fn is_same(one: Option<&ExplicitArena>, other: Option<&ExplicitArena>) -> bool {
    one.map(core::ptr::from_ref) == other.map(core::ptr::from_ref)
}

/// Slots in all of `runs`.
fn count(runs: &[Returned]) -> usize {
    runs.iter().map(|run| run.slots.len()).sum()
}

/// Moves the elements that satisfy `is` to the front; returns how many.
fn partition<T>(items: &mut [T], is: impl Fn(&T) -> bool) -> usize {
    // Most often all of them do.
    let same = items.iter().position(|item| !is(item));
    let Some(mut front) = same else {
        return items.len();
    };
    for at in front + 1..items.len() {
        if is(&items[at]) {
            items.swap(front, at);
            front += 1;
        }
    }
    front
}
