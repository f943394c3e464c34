//! Checks of slabs and of what a bin knows of them, for tests.

use super::shape::Shape;
use super::slab::Slab;
use super::slabs::{ROOMS, Slabs};
use crate::arena::granule::Room;
#[cfg(test)]
use crate::base::tree::Tree;

impl Slab {
    /// Checks the invariants at the head of `slab.rs`.
    ///
    /// # Safety
    /// The bin's lock is held.
    pub unsafe fn validate(self, shape: Shape) {
        // SAFETY: the lock is held.
        unsafe {
            let shape = self.shape(shape);
            let bitmap = self.bitmap(shape);
            let ones: u32 = bitmap.iter().map(|word| word.count_ones()).sum();
            let slab = &*self.0;
            assert_eq!(slab.free, ones);
            assert!(ones <= shape.slots());
            assert_eq!((slab.resident | slab.leaving | slab.seen) & !shape.all_pages(), 0);
            assert_eq!(slab.leaving & !slab.resident, 0);
            self.validate_tails(shape);
            for slot in 0..shape.class.slots as usize {
                let set = bitmap[slot / 64] >> (slot % 64) & 1 == 1;
                assert!(!set || shape.pages_of_slot(slot) & slab.leaving == 0, "a leaving slot is free");
            }
        }
    }
}

impl Slabs {
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
