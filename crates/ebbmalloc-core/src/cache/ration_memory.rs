//! What a rationed cache has beside its stacks; how much of it a class has.

use super::stack::{Entry, RATIONED};
use crate::base::exact::u16_of;
use crate::size::CLASS;
use core::ptr::NonNull;

/// Slots in a ration at most: enough that the slow path costs a thread some three instructions an
/// allocation.
const MOST: usize = 64;
/// What a ration has goes round in the processor's cache, so it should be little there.
const MOST_BYTES: usize = 4096;
/// No ration is planned smaller.
const LEAST: usize = 8;

pub(super) const fn slots_of(class: usize) -> usize {
    let slots = MOST_BYTES / CLASS[class].size as usize;
    if slots > MOST {
        MOST
    } else if slots < LEAST {
        LEAST
    } else {
        slots
    }
}

/// Where the slots of each class's ration begin; in the last place where they end.
pub(super) const START: [u16; RATIONED + 2] = {
    let mut start = [0; RATIONED + 2];
    let mut class = 1;
    while class <= RATIONED {
        start[class + 1] = start[class] + u16_of(slots_of(class));
        class += 1;
    }
    start
};

/// What a rationed cache has beside its stacks.
#[derive(Debug)]
pub struct Rations {
    /// Allocations between the ration of a class and the next one to be sampled; [`UNKNOWN`] until that
    /// is said.
    pub(super) ahead: [u64; RATIONED + 1],
    pub(super) slots: [Entry; START[RATIONED + 1] as usize],
}

pub(super) const UNKNOWN: u64 = u64::MAX;

impl Rations {
    /// Makes rations of a thread of whose samples nothing is known.
    ///
    /// # Safety
    /// `place` is good for them, and the caller's alone.
    pub unsafe fn make(place: NonNull<Self>) {
        // SAFETY: the place is good for rations and the caller's alone (fn contract). The slots need no contents: no ration holds any.
        unsafe { (&raw mut (*place.as_ptr()).ahead).write([UNKNOWN; RATIONED + 1]) };
    }
}
