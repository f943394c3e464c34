//! The lists that the slabs of a bin are on: by fullness, and those to which slots came back since the sweep
//! looked at them. All of it under the bin's lock.

use super::bin::{BUCKETS, Slabs};
use super::shape::Shape;
use super::slab::Slab;
use crate::arena::granule::{List, NO_BUCKET};
use core::ptr::null_mut;

impl Slabs {
    /// The slab with the fewest free slots, but at least one.
    pub(super) fn fullest(&self) -> Option<Slab> {
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

    /// The lists that a slab belongs on.
    ///
    /// # Safety
    /// The slab is one of this bin's, and its lock is held.
    pub(super) unsafe fn buckets_of(&mut self, slab: Slab) -> &mut [List; BUCKETS] {
        // SAFETY: the caller's promise.
        if unsafe { self.is_inherited(slab) } {
            &mut self.inherited
        } else {
            &mut self.buckets
        }
    }

    /// # Safety
    /// As for `buckets_of`.
    pub(super) unsafe fn is_inherited(&self, slab: Slab) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (*slab.0).oldest != self.generation }
    }

    /// Whether another slab than `slab` has free slots: an empty slab is kept while it is the only
    /// one, so that a bin that is emptied and filled in turn does not make and unmake its slab.
    pub(super) unsafe fn has_other_room(&self, slab: Slab) -> bool {
        self.buckets.iter().any(|list| {
            // SAFETY: the list holds slabs of this bin, and the lock is held.
            !list.first.is_null()
                && unsafe { list.first != slab.0 || !(*list.first).next.is_null() }
        })
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

    pub(super) unsafe fn unbucket(&mut self, slab: Slab) {
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
            if self.counting == slab.0 {
                self.counting = next;
            }
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
pub(super) fn fullest_of(buckets: &[List; BUCKETS]) -> Option<Slab> {
    let mut firsts = buckets.iter().rev().map(|list| list.first);
    firsts.find(|first| !first.is_null()).map(Slab)
}
