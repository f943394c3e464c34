//! Runs of neighbouring slots that a bin can lend to one of a larger class (`super::lend`).

use super::slabs::Slabs;
use crate::arena::granule::Room;
use crate::base::exact::u32_of;
use crate::size::CLASS;

/// Slabs that a bin has before it lends: a bin of few has little to give.
const LENDER_SLABS: usize = if cfg!(test) { 1 } else { 16 };
/// Most slots of a block: a run lies in one word of the bitmap, and longer ones are rare.
pub(super) const SLOTS_MAX: usize = 32;

/// What a block of a larger class needs of a lender.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Neighbouring slots.
    pub(super) slots: u32,
    /// Alignment of the first, in bytes: what every slot of the borrower's class has.
    pub(super) align: usize,
}

impl Run {
    /// What a block of class `borrower` needs of class `lender`; `None` where it is not so many slots
    /// exactly, or the slots are too large or too small to lend.
    pub fn of(lender: usize, borrower: usize) -> Option<Self> {
        let (slot, block) = (CLASS[lender].size as usize, CLASS[borrower].size as usize);
        let slots = block / slot;
        let fits = (2..=SLOTS_MAX).contains(&slots) && slots * slot == block;
        (fits && lends(lender))
            .then_some(Self { slots: u32_of(slots), align: 1 << block.trailing_zeros() })
    }
}

/// Whether slots of `class` are small enough to be lent: the bitmap is apart from the descriptor.
pub fn lends(class: usize) -> bool {
    CLASS[class].slots > 64
}

impl Slabs {
    /// Whether there may be something to lend.
    pub(super) fn may_lend(&self) -> bool {
        self.slabs >= LENDER_SLABS && !self.rooms[Room::Much as usize].is_empty()
    }
}
