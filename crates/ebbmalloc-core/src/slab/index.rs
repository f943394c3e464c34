//! Where the slabs of a bin are found: those with free slots in trees by address, and those to which slots came back
//! since the sweep looked at them in a list. All of it under the bin's lock.

use super::shape::Shape;
use super::slab::Slab;
use super::slabs::{ROOMS, Slabs};
use crate::arena::granule::Room;
use crate::arena::tree::{ByAddress, Tree};
use core::ptr::null_mut;

impl Slabs {
    /// The slab with free slots that has the lowest address.
    pub(super) fn lowest(&self) -> Option<Slab> {
        // SAFETY: `&self` is reached through the lock.
        unsafe { lowest_of(&self.rooms) }
    }

    /// In the child of a fork: sets the slabs apart that the parent made. Constant, and touches none of
    /// their descriptors, which are shared as well, unless the parent had inherited slabs itself.
    ///
    /// # Safety
    /// The caller holds this bin's lock.
    pub unsafe fn leave_to_parent(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        for (tree, inherited) in self.rooms.iter_mut().zip(&mut self.inherited) {
            // SAFETY: both hold slabs of this bin, and the lock is held.
            unsafe { inherited.append(tree) };
        }
    }

    /// The trees that a slab belongs in.
    ///
    /// # Safety
    /// The slab is one of this bin's, and its lock is held.
    pub(super) unsafe fn rooms_of(&mut self, slab: Slab) -> &mut [Tree<ByAddress>; ROOMS] {
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

    /// Makes the sweep look at a slab.
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

    /// As a change might leave them that was never completed, or worse.
    #[cfg(test)]
    pub fn tear(&mut self) {
        self.rooms = core::array::from_fn(|_| Tree::torn());
        self.inherited = core::array::from_fn(|_| Tree::torn());
        self.visit = crate::base::corrupt::torn();
        self.sweeping = crate::base::corrupt::torn();
        self.slots_out = 1;
    }

    /// Checks every slab with free slots, the trees and the lists.
    #[cfg(any(test, loom))]
    pub fn validate(&self, shape: Shape) {
        let trees = self.rooms.iter().chain(&self.inherited).enumerate();
        for (index, tree) in trees {
            let (room, inherited) = (index % ROOMS, index >= ROOMS);
            // SAFETY: the trees hold slabs of this bin; `&self` is reached through the lock.
            unsafe {
                tree.validate(&mut |at| {
                    assert_eq!((*at).room as usize, room);
                    assert_eq!(self.is_inherited(Slab(at)), inherited);
                    assert_eq!((*at).free > shape.class.slots / 2, room == Room::Much as usize);
                    assert!((*at).free > 0);
                    Slab(at).validate(shape);
                });
            }
        }
        let mut at = self.visit;
        while !at.is_null() {
            // SAFETY: the lock is held (`&self` comes from the guard), and lists hold valid descriptors only.
            unsafe {
                assert!((*at).listed);
                at = (*at).next;
            }
        }
    }
}

/// Of the slabs in both trees the one with the lowest address.
///
/// # Safety
/// The caller holds the lock of the bin.
pub(super) unsafe fn lowest_of(rooms: &[Tree<ByAddress>; ROOMS]) -> Option<Slab> {
    // SAFETY: the caller holds the lock (fn contract), under which the trees do not change.
    let firsts = rooms.iter().map(|tree| unsafe { tree.first() });
    // Descriptors lie in the order of their granules, but for those of different regions.
    firsts
        .filter(|first| !first.is_null())
        // SAFETY: what is in a tree is a valid descriptor, under the caller's lock.
        .min_by_key(|&first| unsafe { (*first).base })
        .map(Slab)
}
