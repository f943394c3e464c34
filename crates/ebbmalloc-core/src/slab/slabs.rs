//! What the lock of a bin guards: its slabs, and what was counted of them.

use crate::arena::granule::Granule;
use crate::arena::tree::{ByAddress, Tree};
use core::ptr::null_mut;

/// Trees of slabs with free slots, by [`Room`](crate::arena::granule::Room).
pub(super) const ROOMS: usize = 2;

/// What the lock of a bin guards.
pub struct Slabs {
    /// The slabs with free slots.
    pub(super) rooms: [Tree<ByAddress>; ROOMS],
    /// The same of slabs that this process was forked with.
    pub(super) inherited: [Tree<ByAddress>; ROOMS],
    /// Forks between the first process and this one. A slab made in another is inherited.
    pub(super) generation: u32,
    /// The generation since which nothing was abandoned: a slab made in an earlier one is no longer known.
    pub(super) abandoned_before: u32,
    /// Slabs to which slots came back since they were last visited, linked by `next`.
    pub(super) visit: *mut Granule,
    /// What is left of that list during a sweep.
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
    /// Times a refill went on with a slab that was there.
    pub slabs_reused: u64,
    /// Slabs with free slots.
    pub slabs_with_room: usize,
}

// SAFETY: the descriptors behind the pointers belong to whoever holds the bin's lock.
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
    };
}
