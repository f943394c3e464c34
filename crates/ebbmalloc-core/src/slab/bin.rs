//! A bin: the slabs of one class in one shard, behind one lock. Refilled caches take slots from it,
//! flushed ones put them back.
//!
//! Slabs with free slots are on lists by fullness, the fullest first in line, so that sparse slabs
//! empty themselves; slabs to which slots came back are also on the list that the sweep visits.
//!
//! In the child of a fork the slabs that the parent made are set apart: their pages are shared until
//! one of the two writes, so slots on them are not handed out. The child makes slabs of its own, and a
//! page of those holds many new objects where a copied page would hold one.

use super::lend::lends;
use super::slab::{Shape, Slab};
use crate::arena::Arena;
use crate::arena::granule::{Fill, Granule, Kind, List, NO_BUCKET};
use crate::arena::purge::IDLE_TICKS;
use crate::base::corrupt::{Corruption, corruption};
use crate::base::lock::{Guard, Lock, Rank};
use crate::base::metadata::Metadata;
use crate::base::sync::Ordering;
use crate::os::Os;
use core::ptr::null_mut;
use core::sync::atomic::AtomicBool;

/// Lists by fullness: eighths of a slab's slots.
pub(super) const BUCKETS: usize = 8;

/// What a bin is given to work with; it finds nothing by itself.
pub struct Supply<'a, O> {
    /// The kernel.
    pub os: &'a O,
    /// Where slabs come from.
    pub arena: &'a Arena,
    /// Where bitmaps come from.
    pub metadata: &'a Metadata,
    /// log2 of the page size.
    pub page_shift: u32,
    /// The purger's clock.
    pub tick: u32,
}

/// See the module.
pub struct Bin {
    pub(super) slabs: Lock<Slabs>,
    /// Whether a look for slots to lend is worth the lock; a hint, so relaxed.
    pub(super) may_lend: AtomicBool,
}

/// What the lock of a bin guards.
pub struct Slabs {
    /// By fullness: the last has the slabs with the fewest free slots.
    pub(super) buckets: [List; BUCKETS],
    /// The same of slabs that this process was forked with.
    inherited: [List; BUCKETS],
    /// Forks between the first process and this one. A slab made in another is inherited.
    generation: u32,
    /// Slabs to which slots came back since they were last visited, linked by `left`.
    pub(super) visit: *mut Granule,
    /// What is left of that list during a sweep.
    pub(super) sweeping: *mut Granule,
    /// Slabs in this bin.
    pub slabs: usize,
    /// Slots in use or in caches.
    pub slots_out: usize,
    /// Pages that are resident.
    pub resident_pages: usize,
    /// Times a cache was refilled from here.
    pub refills: u64,
    /// Times a batch of slots came back.
    pub flushes: u64,
    /// Pages taken again after they had been returned.
    pub refaulted_pages: u64,
    /// Slots taken since the start.
    pub slots_taken: u64,
    /// Slabs made since the start.
    pub slabs_made: u64,
    /// Times a refill went on with a slab that was there.
    pub slabs_reused: u64,
    /// Slabs with free slots.
    pub slabs_with_room: usize,
}

// SAFETY: the descriptors behind the pointers belong to whoever holds the bin's lock.
unsafe impl Send for Slabs {}

impl Default for Bin {
    fn default() -> Self {
        Self::new()
    }
}

impl Bin {
    const EMPTY: Slabs = Slabs {
        buckets: [const { List::new() }; BUCKETS],
        inherited: [const { List::new() }; BUCKETS],
        generation: 0,
        visit: null_mut(),
        sweeping: null_mut(),
        slabs: 0,
        slots_out: 0,
        resident_pages: 0,
        refills: 0,
        flushes: 0,
        refaulted_pages: 0,
        slots_taken: 0,
        slabs_made: 0,
        slabs_reused: 0,
        slabs_with_room: 0,
    };

    /// No slab yet.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            slabs: Lock::new(Rank::Bin, Self::EMPTY),
            may_lend: AtomicBool::new(false),
        }
    }

    /// No slab yet.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            slabs: Lock::new(Rank::Bin, Self::EMPTY),
            may_lend: AtomicBool::new(false),
        }
    }

    /// The slabs, locked.
    pub fn lock<'a, O: Os>(&'a self, os: &'a O) -> Guard<'a, Slabs, O> {
        self.slabs.lock(os)
    }

    /// The lock itself, for the fork handlers.
    pub fn raw(&self) -> &Lock<Slabs> {
        &self.slabs
    }

    /// Fills `out` with free slots as far as memory goes; returns how many. With `wait` false, none
    /// if a lock is held.
    pub fn take<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        shard: u8,
        out: &mut [*mut u8],
        wait: bool,
    ) -> usize {
        self.take_from(supply, class, shard, out, wait, true)
    }

    /// [`Bin::take`] from the slabs that there are.
    pub fn take_without_growth<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        shard: u8,
        out: &mut [*mut u8],
    ) -> usize {
        self.take_from(supply, class, shard, out, true, false)
    }

    fn take_from<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        shard: u8,
        out: &mut [*mut u8],
        wait: bool,
        grow: bool,
    ) -> usize {
        let shape = Shape::new(class, supply.page_shift);
        let Some(mut slabs) = self.slabs.lock_if(supply.os, wait) else {
            return 0;
        };
        slabs.refills += 1;
        let mut taken = 0;
        while taken < out.len() {
            let slab = match slabs.fullest() {
                Some(slab) => {
                    slabs.slabs_reused += 1;
                    slab
                }
                None if !grow => break,
                None => match slabs.add_slab(supply, shape, class, shard, wait) {
                    Some(slab) => slab,
                    // Better a copied page than none.
                    None => match fullest_of(&slabs.inherited) {
                        Some(slab) => slab,
                        None => break,
                    },
                },
            };
            // SAFETY: the lock is held, and the slab is one of ours.
            unsafe {
                let (before, used) = ((*slab.0).resident, (*slab.0).used);
                taken += slab.take(shape, supply.tick, &mut out[taken..]);
                let new = (*slab.0).resident & !before;
                slabs.resident_pages += new.count_ones() as usize;
                let refaulted = (new & used).count_ones();
                if refaulted > 0 {
                    slabs.refaulted_pages += u64::from(refaulted);
                    supply
                        .arena
                        .note_fresh((refaulted as usize) << supply.page_shift);
                }
                slabs.rebucket(slab, shape);
            }
        }
        slabs.slots_out += taken;
        slabs.slots_taken += taken as u64;
        taken
    }

    /// Puts slots back that belong to this bin; ends the process if one is free already or does not
    /// start a slot. `idle` says that nobody used them since the last tick. With `wait` false,
    /// nothing happens and false comes back if the lock is held.
    ///
    /// # Safety
    /// Each pointer lies in a slab of `class` and this bin's shard, as the byte map says.
    pub unsafe fn put<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        pointers: &[(*mut u8, *mut Granule)],
        idle: bool,
        wait: bool,
    ) -> bool {
        let shape = Shape::new(class, supply.page_shift);
        let Some(mut slabs) = self.slabs.lock_if(supply.os, wait) else {
            return false;
        };
        slabs.flushes += 1;
        for slots in pointers.chunk_by(|a, b| a.1 == b.1) {
            let (first, head) = slots[0];
            let slab = Slab(head);
            // SAFETY: the caller's promise, and the lock is held; a program that broke its contract is
            // found out by the checks.
            unsafe {
                if (*head).kind != Kind::Slab || (*head).class as usize != class {
                    corruption(supply.os, Corruption::DoubleFree, first as usize);
                }
                if let Err((what, address)) = slab.put(shape, slots) {
                    corruption(supply.os, what, address);
                }
                if idle {
                    slab.put_idle(shape, supply.tick, slots);
                }
                slabs.settle(supply, shape, slab, idle, wait);
            }
        }
        slabs.slots_out -= pointers.len();
        if lends(class) {
            self.may_lend.store(slabs.may_lend(), Ordering::Relaxed);
        }
        let bytes = pointers.len() * shape.class.size as usize;
        supply.arena.freed_bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }
}

impl Slabs {
    /// The slab with the fewest free slots, but at least one.
    fn fullest(&self) -> Option<Slab> {
        fullest_of(&self.buckets)
    }

    /// In the child of a fork: sets the slabs apart that the parent made. Constant, and touches few of
    /// their descriptors, which are shared as well.
    ///
    /// # Safety
    /// The caller holds this bin's lock.
    pub unsafe fn leave_to_parent(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        for (list, inherited) in self.buckets.iter_mut().zip(&mut self.inherited) {
            // SAFETY: both lists hold slabs of this bin, and the lock is held.
            unsafe { inherited.append(list) };
        }
    }

    /// Forgets all slabs: for an arena that takes them back whatever is on them.
    ///
    /// # Safety
    /// No slot of theirs is used any more, and the caller takes the slabs' granules from the arena.
    pub unsafe fn forget_slabs(&mut self) {
        *self = Self {
            generation: self.generation,
            refills: self.refills,
            flushes: self.flushes,
            refaulted_pages: self.refaulted_pages,
            slots_taken: self.slots_taken,
            slabs_made: self.slabs_made,
            slabs_reused: self.slabs_reused,
            ..Bin::EMPTY
        };
    }

    /// The lists that a slab belongs on.
    ///
    /// # Safety
    /// The slab is one of this bin's, and its lock is held.
    unsafe fn buckets_of(&mut self, slab: Slab) -> &mut [List; BUCKETS] {
        // SAFETY: the caller's promise.
        if unsafe { self.is_inherited(slab) } {
            &mut self.inherited
        } else {
            &mut self.buckets
        }
    }

    /// # Safety
    /// As for `buckets_of`.
    unsafe fn is_inherited(&self, slab: Slab) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (*slab.0).oldest != self.generation }
    }

    #[cold]
    fn add_slab<O: Os>(
        &mut self,
        supply: &Supply<O>,
        shape: Shape,
        class: usize,
        shard: u8,
        wait: bool,
    ) -> Option<Slab> {
        let granules = shape.class.granules;
        let mut extents = supply.arena.lock_if(supply.os, wait)?;
        let head = supply
            .arena
            .allocate_slab(supply.os, &mut extents, class as u8, granules)?;
        let slab = Slab(head);
        // SAFETY: the granules are ours alone until we hand out a slot.
        unsafe {
            (*head).class = class as u8;
            (*head).shard = shard;
            (*head).bucket = NO_BUCKET;
            (*head).oldest = self.generation;
            let dirty = (*head).fill == Fill::Dirty;
            if !slab.create(supply.os, supply.metadata, shape, dirty, wait) {
                supply
                    .arena
                    .free_slab(&mut extents, head, granules, (*head).fill, supply.tick);
                return None;
            }
            drop(extents);
            self.slabs += 1;
            self.slabs_made += 1;
            self.resident_pages += (*head).resident.count_ones() as usize;
            if dirty {
                // Pages that nobody touches here would stay resident for nothing.
                self.list_for_visit(slab);
            }
            self.rebucket(slab, shape);
        }
        Some(slab)
    }

    /// After slots of a slab came back: to the arena with it if it is whole, else onto its lists. A
    /// signal handler (`wait` false) leaves a whole one to the sweep: its thread may hold the locks
    /// below.
    pub(super) unsafe fn settle<O: Os>(
        &mut self,
        supply: &Supply<O>,
        shape: Shape,
        slab: Slab,
        idle: bool,
        wait: bool,
    ) {
        // SAFETY: the slab is ours, and the lock is held.
        unsafe {
            if wait
                && (*slab.0).free == shape.class.slots
                && (self.is_inherited(slab) || self.has_other_room(slab))
            {
                self.remove_slab(supply, slab, shape, idle);
            } else {
                self.list_for_visit(slab);
                self.rebucket(slab, shape);
            }
        }
    }

    /// Whether another slab than `slab` has free slots: an empty slab is kept while it is the only
    /// one, so that a bin that is emptied and filled in turn does not make and unmake its slab.
    unsafe fn has_other_room(&self, slab: Slab) -> bool {
        self.buckets.iter().any(|list| {
            // SAFETY: the list holds slabs of this bin, and the lock is held.
            !list.first.is_null()
                && unsafe { list.first != slab.0 || !(*list.first).next.is_null() }
        })
    }

    /// Gives a whole slab back to the arena. With `idle`, pages of it that were all free at the last
    /// tick count as free since then.
    pub(super) unsafe fn remove_slab<O: Os>(
        &mut self,
        supply: &Supply<O>,
        slab: Slab,
        shape: Shape,
        idle: bool,
    ) {
        // SAFETY: all slots are free, and the bin's lock is held.
        unsafe {
            self.unbucket(slab);
            if (*slab.0).listed {
                self.unlist(slab);
            }
            let resident = (*slab.0).resident.count_ones() as usize;
            self.slabs -= 1;
            self.resident_pages -= resident;
            slab.destroy(supply.os, supply.metadata, shape);
            let fill = if resident == 0 {
                Fill::Clean
            } else {
                Fill::Dirty
            };
            let all_seen = (*slab.0).resident & !(*slab.0).seen == 0;
            let stamp = if idle && all_seen {
                supply.tick.wrapping_sub(IDLE_TICKS)
            } else {
                supply.tick
            };
            let mut extents = supply.arena.lock(supply.os);
            supply
                .arena
                .free_slab(&mut extents, slab.0, shape.class.granules, fill, stamp);
        }
    }

    /// Puts a slab on the list that fits its free slots; a full one on none.
    pub(super) unsafe fn rebucket(&mut self, slab: Slab, shape: Shape) {
        // SAFETY: the slab is ours, and the lock is held.
        unsafe {
            let free = (*slab.0).free;
            let bucket = if free == 0 {
                NO_BUCKET
            } else {
                (BUCKETS as u32 - 1 - (free - 1) * BUCKETS as u32 / shape.class.slots) as u8
            };
            if bucket != (*slab.0).bucket {
                self.unbucket(slab);
                (*slab.0).bucket = bucket;
                if let Some(list) = self.buckets_of(slab).get_mut(bucket as usize) {
                    list.push_front(slab.0);
                    self.slabs_with_room += 1;
                }
            }
        }
    }

    unsafe fn unbucket(&mut self, slab: Slab) {
        // SAFETY: the slab is ours, and the lock is held; `bucket` names the list it is on.
        unsafe {
            let bucket = (*slab.0).bucket as usize;
            if let Some(list) = self.buckets_of(slab).get_mut(bucket) {
                list.remove(slab.0);
                self.slabs_with_room -= 1;
            }
            (*slab.0).bucket = NO_BUCKET;
        }
    }

    /// Makes the sweep look at a slab.
    pub(super) unsafe fn list_for_visit(&mut self, slab: Slab) {
        // SAFETY: the slab is ours, and the lock is held.
        unsafe {
            if !(*slab.0).listed {
                (*slab.0).listed = true;
                (*slab.0).left = self.visit;
                (*slab.0).right = null_mut();
                if !self.visit.is_null() {
                    (*self.visit).right = slab.0;
                }
                self.visit = slab.0;
            }
        }
    }

    /// Takes a slab off the list to visit.
    pub(super) unsafe fn unlist(&mut self, slab: Slab) {
        // SAFETY: the slab is on the list, and the lock is held.
        unsafe {
            let (next, previous) = ((*slab.0).left, (*slab.0).right);
            if self.visit == slab.0 {
                self.visit = next;
            } else if self.sweeping == slab.0 {
                self.sweeping = next;
            } else {
                (*previous).left = next;
            }
            if !next.is_null() {
                (*next).right = previous;
            }
            (*slab.0).left = null_mut();
            (*slab.0).right = null_mut();
            (*slab.0).listed = false;
        }
    }

    /// Checks every slab with free slots, and the lists.
    #[cfg(any(test, loom))]
    pub fn validate(&self, shape: Shape) {
        let lists = self.buckets.iter().chain(&self.inherited).enumerate();
        for (index, list) in lists {
            let (bucket, inherited) = (index % BUCKETS, index >= BUCKETS);
            let mut at = list.first;
            while !at.is_null() {
                // SAFETY: the lists hold slabs of this bin; `&self` is reached through the lock.
                unsafe {
                    assert_eq!((*at).bucket as usize, bucket);
                    assert_eq!(self.is_inherited(Slab(at)), inherited);
                    assert!((*at).free > 0);
                    Slab(at).validate(shape);
                    at = (*at).next;
                }
            }
        }
        let mut at = self.visit;
        while !at.is_null() {
            // SAFETY: as above.
            unsafe {
                assert!((*at).listed);
                at = (*at).left;
            }
        }
    }
}

/// Of lists by fullness, the slab with the fewest free slots.
fn fullest_of(buckets: &[List; BUCKETS]) -> Option<Slab> {
    let mut firsts = buckets.iter().rev().map(|list| list.first);
    firsts.find(|first| !first.is_null()).map(Slab)
}
