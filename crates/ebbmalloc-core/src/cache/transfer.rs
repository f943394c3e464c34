//! Fill and flush: slots between a cache and the bins, in batches, so that a lock is worth taking.

use super::cache::Cache;
use super::explicit::{EXPLICIT, ExplicitArena};
use super::explicit_table::ExplicitArenas;
use super::stack::{Entry, Stack};
use crate::arena::granule::Granule;
use crate::base::corrupt::{Corruption, corruption};
use crate::os::Os;
use crate::size::{CLASS, CLASSES, GRANULE};
use crate::slab::bin::{Bin, Supply};
use crate::slab::lend::Run;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

/// Shards at most: copies of every bin, so that threads on different processors do not meet.
pub const SHARDS: usize = if cfg!(loom) { 1 } else { 8 };
/// Times as many cold slots as used ones show that a stack is what a burst has left.
const OVER: usize = 4;
/// A drain of a cache, and how far it has come.
pub struct Drain {
    /// Everything goes, not only what is cold.
    all: bool,
    /// The class whose turn it is.
    class: usize,
    /// Slots of it that were put back.
    count: usize,
    /// Bytes put back into slabs.
    pub put_back_bytes: usize,
    /// Bytes left in the cache.
    pub kept_bytes: usize,
}

impl Drain {
    /// A drain that begins: of what is cold, or with `all` of everything.
    pub const fn new(all: bool) -> Self {
        Self {
            all,
            class: 1,
            count: 0,
            put_back_bytes: 0,
            kept_bytes: 0,
        }
    }

    /// Whether everything goes.
    pub const fn all(&self) -> bool {
        self.all
    }
}

/// Slots that are put back with one look-up of their slabs.
const BATCH: usize = 64;

/// A bin with cache lines of its own, so that neighbours do not slow each other down.
#[repr(align(64))]
#[derive(Default)]
pub struct PaddedBin(pub Bin);

/// The bins of one shard by class. Entry 0 is not used.
pub type Shard = [PaddedBin; CLASSES + 1];

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
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            shards: [const { [const { PaddedBin(Bin::new()) }; CLASSES + 1] }; SHARDS],
            explicit: ExplicitArenas::new(),
        }
    }

    /// No slab anywhere (loom's cells are not const).
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
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
    fn refill<O: Os>(
        &self,
        supply: &Supply<O>,
        cache: &Cache,
        class: usize,
        out: &mut [Entry],
    ) -> usize {
        match self.explicit.get(cache.home()) {
            Some(arena) => self.explicit.with(arena, supply, |supply| {
                arena.bin(class).take(supply, class, EXPLICIT, out, true)
            }),
            None => {
                let shard = cache.shard();
                let bin = self.get(shard as usize, class);
                let mut got = bin.take_without_growth(supply, class, shard, out);
                if got == 0 {
                    got = self.borrow(supply, class, shard, out);
                }
                if got == 0 {
                    got = bin.take(supply, class, shard, out, true);
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

    /// Takes back a block that [`Bins::borrow`] made, in a slab whose head is `head`. With `wait`
    /// false, false comes back if a lock is held.
    ///
    /// # Safety
    /// The block lies in the slab.
    pub unsafe fn take_back<O: Os>(
        &self,
        supply: &Supply<O>,
        head: *mut Granule,
        block: Entry,
        wait: bool,
    ) -> bool {
        // SAFETY: the caller's promise; what a slab's descriptor says does not change.
        unsafe {
            let (shard, class) = ((*head).shard as usize % SHARDS, (*head).class as usize);
            self.get(shard, class)
                .take_back(supply, class, head, block as usize, wait)
        }
    }

    /// Puts slots of `class` back into the bins they came from; ends the process if one of them is
    /// free already or no slot. With `wait` false only as far as locks are free; returns how many
    /// from the front were dealt with.
    ///
    /// # Safety
    /// The byte map says `class` for each of them.
    pub unsafe fn put<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        slots: &[Entry],
        idle: bool,
        wait: bool,
    ) -> usize {
        let mut done = 0;
        for chunk in slots.chunks(BATCH) {
            let mut found = [const { MaybeUninit::<(Entry, *mut Granule)>::uninit() }; BATCH];
            let (mut slab, mut start, mut bytes): (*mut Granule, _, _) = (null_mut(), 0, 0);
            let mut own = true;
            for (place, &slot) in found.iter_mut().zip(chunk) {
                // Most often in the same slab as the one before it.
                if (slot as usize).wrapping_sub(start) >= bytes {
                    slab = self.slab_of(supply, slot);
                    // SAFETY: `slab_of` returned a valid descriptor. What was lent is of another class.
                    unsafe {
                        start = (*slab).base;
                        bytes = CLASS[(*slab).class as usize].granules as usize * GRANULE;
                    }
                }
                // SAFETY: as above.
                own &= unsafe { (*slab).class } as usize == class;
                place.write((slot, slab));
            }
            // SAFETY: as many places as the chunk has slots were written just now.
            let mut rest: &mut [(Entry, *mut Granule)] =
                unsafe { core::slice::from_raw_parts_mut(found.as_mut_ptr().cast(), chunk.len()) };
            if !own {
                // SAFETY: `slab_of` returned valid descriptors.
                let mine = partition(rest, |&(_, slab)| unsafe {
                    (*slab).class as usize == class
                });
                let (own, lent) = rest.split_at_mut(mine);
                for &mut (block, slab) in lent {
                    // SAFETY: the block lies in the slab.
                    if !unsafe { self.take_back(supply, slab, block, wait) } {
                        return done;
                    }
                    done += 1;
                }
                rest = own;
            }
            while let [(_, first), ..] = *rest {
                let first: *mut Granule = first;
                // SAFETY: `slab_of` returned a valid descriptor.
                let shard = unsafe { (*first).shard };
                let owner = self.owner_of(rest[0]);
                let same = partition(rest, |&slot| {
                    // SAFETY: as above for all of them.
                    let same_shard = unsafe { (*slot.1).shard } == shard;
                    same_shard && (owner.is_none() || is_same(owner, self.owner_of(slot)))
                });
                let (now, later) = rest.split_at_mut(same);
                let put = match owner {
                    // SAFETY: the byte map says `class`, the map of owners says whose.
                    Some(arena) => self.explicit.with(arena, supply, |supply| unsafe {
                        arena.bin(class).put(supply, class, now, idle, wait)
                    }),
                    // SAFETY: the byte map says `class`, the descriptors say `shard`.
                    None => unsafe {
                        self.get(shard as usize % SHARDS, class)
                            .put(supply, class, now, idle, wait)
                    },
                };
                if !put {
                    return done;
                }
                done += same;
                rest = later;
            }
        }
        done
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

    /// The explicit arena that a slot's slab belongs to.
    fn owner_of(&self, (slot, slab): (Entry, *mut Granule)) -> Option<&ExplicitArena> {
        // SAFETY: the descriptor of a slab.
        if unsafe { (*slab).shard } != EXPLICIT {
            return None;
        }
        self.explicit.find(slot as usize)
    }
}

fn is_same(one: Option<&ExplicitArena>, other: Option<&ExplicitArena>) -> bool {
    one.map(core::ptr::from_ref) == other.map(core::ptr::from_ref)
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

impl Cache {
    /// Lets the stack of `class` grow, and the arena know.
    ///
    /// # Safety
    /// The caller has entered the cache, and `stack` is its stack of `class`.
    unsafe fn grow<O: Os>(&self, supply: &Supply<O>, class: usize, stack: &mut Stack) {
        // SAFETY: the caller's promise.
        let room = unsafe { stack.grow(supply.os, supply.metadata, self.first_stacks(), class) };
        supply.arena.note_room(room);
    }

    /// Takes a slot of `class`, refilling the stack if it is empty. Null if there is no memory.
    ///
    /// # Safety
    /// The caller has entered the cache.
    pub unsafe fn pop_or_refill<O: Os>(
        &self,
        supply: &Supply<O>,
        bins: &Bins,
        class: usize,
    ) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            self.with_stack(class, |stack, demand| {
                if stack.is_closed() {
                    let mut slot = [null_mut()];
                    bins.refill(supply, self, class, &mut slot);
                    return slot[0];
                }
                if stack.is_empty() {
                    if demand.batch as usize > stack.capacity() / 2 {
                        self.grow(supply, class, stack);
                    }
                    let want = (demand.batch as usize).min(stack.capacity() / 2).max(1);
                    demand.refilled();
                    let out = core::slice::from_raw_parts_mut(stack.base, want);
                    let got = bins.refill(supply, self, class, out);
                    // The lowest address is handed out first.
                    out[..got].reverse();
                    stack.top = stack.base.wrapping_add(got);
                    stack.low = stack.base;
                    if got == 0 {
                        return null_mut();
                    }
                } else if stack.top == stack.low {
                    let rest = stack.cold().saturating_sub(demand.lower());
                    stack.low = stack.base.wrapping_add(rest);
                }
                stack.top = stack.top.wrapping_sub(1);
                stack.low = stack.low.min(stack.top);
                *stack.top
            })
        }
    }

    /// Keeps a slot of `class`, flushing the older half of the stack if it is full.
    ///
    /// # Safety
    /// The caller has entered the cache, and the byte map says `class` for `slot`.
    pub unsafe fn push_or_flush<O: Os>(
        &self,
        supply: &Supply<O>,
        bins: &Bins,
        class: usize,
        slot: *mut u8,
    ) {
        // SAFETY: the caller's promise; the word before an empty stack's base is readable.
        unsafe {
            self.with_stack(class, |stack, demand| {
                if stack.is_closed() {
                    bins.put(supply, class, &[slot], false, true);
                    return;
                }
                if *stack.top.wrapping_sub(1) == slot {
                    corruption(supply.os, Corruption::DoubleFree, slot as usize);
                }
                if stack.top == stack.full && stack.should_grow(class, *demand) {
                    self.grow(supply, class, stack);
                    demand.ran_dry = false;
                }
                if stack.top == stack.full {
                    let half = stack.len().div_ceil(2);
                    bins.put(supply, class, stack.oldest(half), false, true);
                    stack.drop_oldest(half);
                }
                *stack.top = slot;
                stack.top = stack.top.wrapping_add(1);
            });
        }
    }

    /// Puts back what was not touched since the last call, and sets the marks for the next. With
    /// `all`, puts everything back. Returns the bytes put back and the bytes kept.
    ///
    /// # Safety
    /// The caller has entered or seized the cache.
    pub unsafe fn drain<O: Os>(
        &self,
        supply: &Supply<O>,
        bins: &Bins,
        all: bool,
    ) -> (usize, usize) {
        let mut drain = Drain::new(all);
        // SAFETY: the caller's promise.
        while !unsafe { self.drain_some(supply, bins, &mut drain, &mut { usize::MAX }) } {}
        (drain.put_back_bytes, drain.kept_bytes)
    }

    /// Goes on with a drain, putting back no more than about `budget` slots, which it lessens. True if it came to
    /// the end.
    ///
    /// # Safety
    /// The caller has entered or seized the cache.
    pub unsafe fn drain_some<O: Os>(
        &self,
        supply: &Supply<O>,
        bins: &Bins,
        drain: &mut Drain,
        budget: &mut usize,
    ) -> bool {
        while drain.class <= CLASSES {
            let class = drain.class;
            let size = CLASS[class].size as usize;
            // SAFETY: the caller's promise.
            let done = unsafe {
                self.with_stack(class, |stack, demand| {
                    let cold = if drain.all { stack.len() } else { stack.cold() };
                    let count = cold.min(*budget);
                    if count > 0 {
                        bins.put(supply, class, stack.oldest(count), !drain.all, true);
                        stack.drop_oldest(count);
                        drain.put_back_bytes += count * size;
                        drain.count += count;
                        *budget -= count;
                    }
                    if count < cold {
                        return false;
                    }
                    if drain.count > 0 {
                        demand.was_cold();
                        // A burst is over. What is left of it lies here and there, a page each; a refill
                        // takes slots side by side.
                        let rest = stack.len();
                        if rest > 0 && drain.count >= OVER * rest {
                            bins.put(supply, class, stack.oldest(rest), false, true);
                            stack.drop_oldest(rest);
                            drain.put_back_bytes += rest * size;
                            *budget = budget.saturating_sub(rest);
                        }
                    }
                    if stack.is_empty() && !stack.is_closed() {
                        stack.shrink(supply.os, supply.metadata, self.first_stacks(), class);
                    }
                    stack.low = stack.top;
                    demand.marked();
                    drain.kept_bytes += stack.len() * size;
                    true
                })
            };
            if !done {
                return false;
            }
            drain.class += 1;
            drain.count = 0;
        }
        true
    }

    /// From now on slots of classes up to `most` are kept, and no others; those that are kept already
    /// go back.
    ///
    /// # Safety
    /// The caller has entered the cache.
    pub unsafe fn limit<O: Os>(&self, supply: &Supply<O>, bins: &Bins, most: usize) {
        for class in 1..=CLASSES {
            // SAFETY: the caller's promise.
            unsafe {
                self.with_stack(class, |stack, _| {
                    if class <= most {
                        if stack.is_closed() {
                            *stack = Stack::first(self.first_stacks(), class);
                        }
                        return;
                    }
                    let count = stack.len();
                    bins.put(supply, class, stack.oldest(count), false, true);
                    stack.drop_oldest(count);
                    stack.shrink(supply.os, supply.metadata, self.first_stacks(), class);
                    *stack = Stack::closed(self.first_stacks(), class);
                });
            }
        }
    }

    /// The largest class of which slots are kept; 0 for none.
    ///
    /// # Safety
    /// The caller has entered the cache.
    pub unsafe fn limit_now(&self) -> usize {
        let open = |class: &usize| {
            // SAFETY: the caller's promise.
            unsafe { self.with_stack(*class, |stack, _| !stack.is_closed()) }
        };
        (1..=CLASSES).rev().find(open).unwrap_or(0)
    }

    /// Bytes in the cache.
    ///
    /// # Safety
    /// The caller has entered or seized the cache.
    pub unsafe fn bytes(&self) -> usize {
        // SAFETY: the caller's promise.
        (1..=CLASSES)
            .map(|class| unsafe {
                self.with_stack(class, |stack, _| stack.len() * CLASS[class].size as usize)
            })
            .sum()
    }
}
