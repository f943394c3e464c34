//! A bin: the slabs of one class in one shard, behind one lock. Refilled caches take slots from it,
//! flushed ones put them back.
//!
//! Slots are taken from the slab with the lowest address that has free ones, so that slabs with high addresses become
//! empty. Slabs to which slots came back are also on the list that the sweep visits.
//!
//! In the child of a fork no slots of the parent's slabs are handed out: parent and child share their pages until one of
//! them writes, and each new object there would copy a page. The child makes its own slabs, where many new objects share a
//! page.

use super::shape::Shape;
use super::slab::Slab;
use super::slabs::{Slabs, lowest_of};
use crate::arena::Arena;
use crate::arena::granule::{Fill, Kind, Room};
use crate::arena::purge::IDLE_TICKS;
use crate::base::corrupt::{Corruption, corruption};
use crate::base::lock::{Guard, Lock, Rank, Wait};
use crate::base::metadata::Metadata;
use crate::base::sync::initialiser;
use crate::os::Os;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether slots that come back were used since the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// They may have been.
    Fresh,
    /// They were not.
    Idle,
}

/// Everything outside of the bin that its functions need; passed as an argument.
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
    /// If set, new slabs have a lead if their class has one, except in this shard.
    pub aligned_shard: Option<u8>,
}

/// Slots that come back.
pub struct Returned<'a> {
    /// At most 64.
    pub slots: &'a [*mut u8],
    /// A bit for each that is not back yet.
    pub left: u64,
}

/// See the module.
pub struct Bin {
    pub(super) slabs: Lock<Slabs>,
    /// Whether a look for slots to lend is worth the lock; a hint, so relaxed.
    pub(super) may_lend: AtomicBool,
}

impl Bin {
    initialiser! {
        /// No slab yet.
        pub fn new() -> Self {
            Self { slabs: Lock::new(Rank::Bin, Slabs::EMPTY), may_lend: AtomicBool::new(false) }
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

    /// Fills `out` with free slots, as far as there is memory; returns how many. With [`Wait::No`], none if a lock is held.
    pub fn take<O: Os>(&self, supply: &Supply<O>, class: usize, shard: u8, out: &mut [*mut u8], wait: Wait) -> usize {
        self.take_from(supply, class, shard, out, wait, true)
    }

    /// [`Bin::take`] from existing slabs only.
    pub fn take_without_growth<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        shard: u8,
        out: &mut [*mut u8],
    ) -> usize {
        self.take_from(supply, class, shard, out, Wait::Yes, false)
    }

    fn take_from<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        shard: u8,
        out: &mut [*mut u8],
        wait: Wait,
        grow: bool,
    ) -> usize {
        let shape = Shape::new(class, supply.page_shift);
        let Some(mut slabs) = self.slabs.lock_if(supply.os, wait) else {
            return 0;
        };
        let mut taken = 0;
        while taken < out.len() {
            let slab = match slabs.lowest() {
                Some(slab) => {
                    slabs.slabs_reused += 1;
                    slab
                }
                None if !grow => break,
                None => match slabs.add_slab(supply, shape, class, shard, wait) {
                    Some(slab) => slab,
                    // There is no memory for a slab: rather copy a page than fail.
                    // SAFETY: the lock is held.
                    None => match unsafe { lowest_of(&slabs.inherited) } {
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
                    supply.arena.note_fresh((refaulted as usize) << supply.page_shift);
                }
                slabs.settle_room(slab, shape);
            }
        }
        slabs.refills += u64::from(taken > 0);
        slabs.slots_out += taken;
        slabs.slots_taken += taken as u64;
        taken
    }

    /// Puts those of the slots back that are this bin's. Ends the process if one is free already or is no start of a slot. With
    /// [`Wait::No`] and the lock held, it does nothing and returns false.
    ///
    /// # Safety
    /// Each slot lies in a slab. This bin is that of `class` and `shard` in the supply's arena.
    #[inline(never)]
    pub unsafe fn put<O: Os>(
        &self,
        supply: &Supply<O>,
        (class, shard): (usize, u8),
        returned: &mut Returned,
        age: Age,
        wait: Wait,
    ) -> bool {
        let shape = Shape::new(class, supply.page_shift);
        let Some(mut slabs) = self.slabs.lock_if(supply.os, wait) else {
            return false;
        };
        slabs.flushes += 1;
        let (mut at, mut count, mut others) = (0, 0, 0);
        while let slots @ [first, ..] = &returned.slots[at..] {
            // SAFETY: the fn contract, and the lock is held. A program that freed a slot twice may have let its slab go: the
            // descriptor is still one, and the checks end the process.
            let done = unsafe {
                let granule = supply.arena.granule_of(*first as usize);
                let head = granule.map_or(null_mut(), |granule| (*granule).head);
                let is_own = !head.is_null()
                    && (*head).class as usize == class
                    && (*head).shard == shard
                    && returned.left >> at & 1 != 0;
                if !is_own {
                    others |= 1 << at;
                    at += 1;
                    continue;
                }
                if (*head).kind != Kind::Slab {
                    corruption(supply.os, Corruption::DoubleFree, *first as usize);
                }
                slabs.put_some(supply, shape, Slab(head), slots, (age, wait))
            };
            at += done;
            count += done;
        }
        returned.left &= others;
        slabs.count_back(count);
        self.note_lendable(class, &slabs);
        let bytes = count * shape.class.size as usize;
        supply.arena.freed_bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }
}

impl Slabs {
    /// Puts the first of `slots` back, and those after it that lie in the same slab; how many.
    ///
    /// # Safety
    /// The slab is or was one of this bin's, and the first slot lies in it.
    #[inline(always)]
    unsafe fn put_some<O: Os>(
        &mut self,
        supply: &Supply<O>,
        shape: Shape,
        slab: Slab,
        slots: &[*mut u8],
        (age, wait): (Age, Wait),
    ) -> usize {
        // SAFETY: the fn contract; `&mut self` is reached through the lock.
        unsafe {
            if self.is_abandoned(slab) {
                return 1;
            }
            let done = match slab.put(shape, slots) {
                Ok(done) => done,
                Err((what, address)) => corruption(supply.os, what, address),
            };
            if age == Age::Idle {
                slab.put_idle(shape, supply.tick, &slots[..done]);
            }
            // Most often the slab has slots in use, and is on the list and in the tree that it belongs in.
            let (head, slots) = (&*slab.0, shape.class.slots);
            let room = if head.free > slots / 2 { Room::Much } else { Room::Some };
            if !head.listed || head.room != room || head.free + 1 >= slots {
                self.settle(supply, shape, slab, age, wait);
            }
            done
        }
    }

    /// Counts `slots` that came back. Saturates: slots of abandoned slabs may not have been counted.
    pub(super) fn count_back(&mut self, slots: usize) {
        self.slots_out = self.slots_out.saturating_sub(slots);
    }

    /// After slots of a slab came back: returns the slab to the arena if all of its slots are free, else puts it on its
    /// lists. In two cases a slab with all slots free stays for the sweep: in a signal handler, whose thread may hold the
    /// arena's locks; and while pages without any slot, at the end of a slab of few large slots, are leaving, because the
    /// sweep still uses the slab.
    #[inline(never)]
    pub(super) unsafe fn settle<O: Os>(&mut self, supply: &Supply<O>, shape: Shape, slab: Slab, age: Age, wait: Wait) {
        // SAFETY: the slab is ours, and the lock is held.
        unsafe {
            // The count alone keeps a slab whose leaving pages hold slots; its mutation takes both guards away.
            let is_settled =
                (*slab.0).leaving == 0 || cfg!(any(ebb_mutation = "leaving_waste", ebb_mutation = "leaving_count"));
            if wait == Wait::Yes
                && is_settled
                && slab.is_whole(shape)
                && (self.is_inherited(slab) || self.has_other_room(slab))
            {
                self.remove_slab(supply, slab, shape, age);
            } else {
                self.list_for_visit(slab);
                self.settle_room(slab, shape);
            }
        }
    }

    /// Returns a slab whose slots are all free to the arena. If it is idle, pages that were free at the last tick count as
    /// free since then.
    pub(super) unsafe fn remove_slab<O: Os>(&mut self, supply: &Supply<O>, slab: Slab, shape: Shape, age: Age) {
        // SAFETY: all slots are free, and the bin's lock is held.
        unsafe {
            self.leave_room(slab);
            if (*slab.0).listed {
                self.unlist(slab);
            }
            let resident = (*slab.0).resident.count_ones() as usize;
            self.slabs -= 1;
            self.resident_pages -= resident;
            let all_seen = (*slab.0).resident & !(*slab.0).seen == 0;
            // What the sweep has emptied was idle, too.
            let was_idle = resident == 0 || age == Age::Idle && all_seen;
            slab.destroy(supply.os, supply.metadata, shape, was_idle);
            let fill = if resident == 0 { Fill::Clean } else { Fill::Dirty };
            let stamp = if age == Age::Idle && all_seen { supply.tick.wrapping_sub(IDLE_TICKS) } else { supply.tick };
            let mut extents = supply.arena.lock(supply.os);
            supply.arena.free_slab(&mut extents, slab.0, shape.class.granules, fill, stamp);
        }
    }
}
