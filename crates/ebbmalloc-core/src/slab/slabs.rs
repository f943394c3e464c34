//! The data that a bin's lock guards: its slabs and their counters. Slabs with free slots are in trees by address. Slabs to
//! which slots came back since the last sweep are in a list.

use super::shape::Shape;
use super::slab::Slab;
use crate::arena::granule::{Granule, Room};
use crate::base::tree::{ByAddress, Tree};
use core::ptr::null_mut;

/// Trees of slabs with free slots, by [`Room`].
pub(super) const ROOMS: usize = 2;

/// What the lock of a bin guards.
pub struct Slabs {
    /// The slabs with free slots.
    pub(super) rooms: [Tree<Granule, ByAddress>; ROOMS],
    /// The same for slabs that this process inherited in a fork.
    pub(super) inherited: [Tree<Granule, ByAddress>; ROOMS],
    /// Forks between the first process and this one. A slab made in another is inherited.
    pub(super) generation: u32,
    /// Slabs made in an earlier generation than this were abandoned.
    pub(super) abandoned_before: u32,
    /// Slabs to which slots came back since they were last visited, linked by `next`.
    pub(super) visit: *mut Granule,
    /// The rest of that list during a sweep.
    pub(super) sweeping: *mut Granule,
    /// The slab of either list that a count comes to next; see `free_pages`.
    pub(super) counting: *mut Granule,
    /// Address of the slab that lent last.
    pub(super) lender: usize,
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
    /// Times a refill used a slab that existed already.
    pub slabs_reused: u64,
    /// Slabs with free slots.
    pub slabs_with_room: usize,
    pub(super) growth: Growth,
}

/// How many slabs a bin got without pages, since a tick began.
#[derive(Clone, Copy)]
pub(super) struct Growth {
    pub tick: u32,
    pub slabs: usize,
    /// The frame that asked for huge pages last.
    pub frame: usize,
}

// SAFETY: the descriptors at the pointers belong to the thread that holds the bin's lock.
unsafe impl Send for Slabs {}

impl Slabs {
    /// No slab yet.
    pub(super) const EMPTY: Self = Self {
        rooms: [const { Tree::new() }; ROOMS],
        inherited: [const { Tree::new() }; ROOMS],
        lender: 0,
        generation: 0,
        abandoned_before: 0,
        visit: null_mut(),
        sweeping: null_mut(),
        counting: null_mut(),
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
        growth: Growth { tick: 0, slabs: 0, frame: 0 },
    };

    /// The slab with free slots that has the lowest address.
    pub(super) fn lowest(&self) -> Option<Slab> {
        // SAFETY: `&self` is reached through the lock.
        unsafe { lowest_of(&self.rooms) }
    }

    /// The trees that a slab belongs in.
    ///
    /// # Safety
    /// The slab is one of this bin's, and its lock is held.
    pub(super) unsafe fn rooms_of(&mut self, slab: Slab) -> &mut [Tree<Granule, ByAddress>; ROOMS] {
        // SAFETY: the slab is one of this bin's, and the lock is held (fn contract), as `is_inherited` asks for.
        if unsafe { self.is_inherited(slab) } { &mut self.inherited } else { &mut self.rooms }
    }

    /// # Safety
    /// As for `rooms_of`.
    pub(super) unsafe fn is_inherited(&self, slab: Slab) -> bool {
        // SAFETY: the slab is one of this bin's (fn contract), so its descriptor is valid; a slab's generation does
        // not change.
        unsafe { (*slab.0).oldest != self.generation }
    }

    /// Whether another slab than `slab` has free slots: an empty slab is kept while it is the only
    /// one, so that a bin that is emptied and filled in turn does not make and unmake its slab.
    pub(super) unsafe fn has_other_room(&self, slab: Slab) -> bool {
        // SAFETY: the lock is held (`&self` comes from the guard), and trees hold valid descriptors only.
        self.rooms.iter().any(|tree| unsafe { tree.has_other(slab.0) })
    }

    /// Puts a slab into the tree that fits its free slots; a full one into none.
    pub(super) unsafe fn settle_room(&mut self, slab: Slab, shape: Shape) {
        // SAFETY: the slab is ours, and the lock is held.
        unsafe {
            let room = match (*slab.0).free {
                0 => Room::None,
                free if free > shape.class.slots / 2 => Room::Much,
                _ => Room::Some,
            };
            if room != (*slab.0).room {
                self.leave_room(slab);
                (*slab.0).room = room;
                if let Some(tree) = self.rooms_of(slab).get_mut(room as usize) {
                    tree.insert(slab.0);
                    self.slabs_with_room += 1;
                }
            }
        }
    }

    /// Takes a slab out of its tree, if it is in one.
    pub(super) unsafe fn leave_room(&mut self, slab: Slab) {
        // SAFETY: the slab is ours, and the lock is held; `room` names the tree that it is in.
        unsafe {
            let room = (*slab.0).room;
            if let Some(tree) = self.rooms_of(slab).get_mut(room as usize) {
                tree.remove(slab.0);
                self.slabs_with_room -= 1;
            }
            (*slab.0).room = Room::None;
        }
    }

    /// Puts a slab on the list that the next sweep visits.
    pub(super) unsafe fn list_for_visit(&mut self, slab: Slab) {
        // SAFETY: the slab is ours, and the lock is held.
        unsafe {
            if !(*slab.0).listed {
                (*slab.0).listed = true;
                (*slab.0).next = self.visit;
                (*slab.0).prev = null_mut();
                if !self.visit.is_null() {
                    (*self.visit).prev = slab.0;
                }
                self.visit = slab.0;
            }
        }
    }

    /// Takes a slab off the list to visit.
    pub(super) unsafe fn unlist(&mut self, slab: Slab) {
        // SAFETY: the slab is on the list, and the lock is held.
        unsafe {
            let (next, previous) = ((*slab.0).next, (*slab.0).prev);
            if self.counting == slab.0 {
                self.counting = next;
            }
            if self.visit == slab.0 {
                self.visit = next;
            } else if self.sweeping == slab.0 {
                self.sweeping = next;
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).prev = previous;
            }
            (*slab.0).next = null_mut();
            (*slab.0).prev = null_mut();
            (*slab.0).listed = false;
        }
    }
}

/// Of the slabs in both trees the one with the lowest address.
///
/// # Safety
/// The caller holds the lock of the bin.
pub(super) unsafe fn lowest_of(rooms: &[Tree<Granule, ByAddress>; ROOMS]) -> Option<Slab> {
    // SAFETY: the caller holds the lock (fn contract), under which the trees do not change.
    let firsts = rooms.iter().map(|tree| unsafe { tree.first() });
    // Descriptors lie in the order of their granules, but for those of different regions.
    firsts
        .filter(|first| !first.is_null())
        // SAFETY: what is in a tree is a valid descriptor, under the caller's lock.
        .min_by_key(|&first| unsafe { (*first).base })
        .map(Slab)
}
