//! Slabs that a bin no longer serves requests from: slabs of a fork's parent, slabs that a fork found half
//! changed, and those of an arena that ends.

use super::slab::Slab;
use super::slabs::Slabs;

impl Slabs {
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

    /// Forgets all slabs: for an arena that takes them back whatever is on them.
    ///
    /// # Safety
    /// No slot of theirs is used any more, and the caller takes the slabs' granules from the arena.
    pub unsafe fn forget_slabs(&mut self) {
        *self = self.without_slabs();
    }

    /// In the child of a fork that found the bin half changed: no slab is known any more. Those there are stay as they are
    /// for ever; slots of theirs that come back change nothing.
    pub fn abandon(&mut self) {
        let generation = self.generation.wrapping_add(1);
        *self = Self {
            generation,
            abandoned_before: generation,
            slabs: self.slabs,
            slots_out: self.slots_out,
            resident_pages: self.resident_pages,
            ..self.without_slabs()
        };
    }

    /// A copy with the counters, but without any slab.
    fn without_slabs(&self) -> Self {
        Self {
            generation: self.generation,
            abandoned_before: self.abandoned_before,
            refills: self.refills,
            flushes: self.flushes,
            refaulted_pages: self.refaulted_pages,
            slots_taken: self.slots_taken,
            slabs_made: self.slabs_made,
            slabs_reused: self.slabs_reused,
            ..Slabs::EMPTY
        }
    }

    /// Whether a slab was abandoned: nothing that its descriptor says of free slots and of lists is true.
    ///
    /// # Safety
    /// The slab is or was one of this bin's.
    pub(super) unsafe fn is_abandoned(&self, slab: Slab) -> bool {
        // SAFETY: the slab is or was this bin's (fn contract), so its descriptor is valid: the generation of a slab does not change.
        let made = unsafe { (*slab.0).oldest };
        (made.wrapping_sub(self.abandoned_before).cast_signed()) < 0
    }
}
