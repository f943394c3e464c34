//! The geometry of a slab: which slots lie on which pages, and which in which word of the bitmap. Pure.

use crate::base::exact::u32_of;
use crate::size::{CLASS, Class, GRANULE, LEAD};

/// Geometry that does not change: the class and the page size.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The slab's class.
    pub class: &'static Class,
    /// log2 of the page size.
    pub page_shift: u32,
    /// Bytes before the first slot: 0 or [`LEAD`].
    pub lead: usize,
}

impl Shape {
    /// The shape of a slab of `class` with pages of `1 << page_shift` bytes and without a lead.
    pub fn new(class: usize, page_shift: u32) -> Self {
        Self { class: &CLASS[class], page_shift, lead: 0 }
    }

    /// The same with the lead of a slab whose first slot is at `first_slot`.
    #[inline]
    pub fn with_lead_of(self, first_slot: usize) -> Self {
        const { assert!(LEAD.next_power_of_two() == 64) }
        Self { lead: first_slot % 64, ..self }
    }

    /// Slots of the slab: one fewer than the class says where the lead leaves no place for the last.
    #[inline]
    pub fn slots(self) -> u32 {
        let end = self.lead + self.class.slots as usize * self.class.size as usize;
        self.class.slots - u32::from(end > self.class.granules as usize * GRANULE)
    }

    /// Pages of the slab.
    pub fn pages(self) -> u32 {
        u32_of((self.class.granules as usize * GRANULE) >> self.page_shift)
    }

    /// All pages of the slab as a mask.
    pub fn all_pages(self) -> u64 {
        mask(0, self.pages())
    }

    /// The pages that slot `slot` touches.
    #[inline]
    pub fn pages_of_slot(self, slot: usize) -> u64 {
        self.pages_between(slot, slot)
    }

    /// The slots that touch page `page`: the first and the one after the last.
    #[inline]
    pub fn slots_on_page(self, page: u32) -> (usize, usize) {
        self.slots_on_pages(page, 1)
    }

    /// The slots that touch one of `count` pages from `page` on: the first and the one after the last.
    #[inline]
    pub(super) fn slots_on_pages(self, page: u32, count: u32) -> (usize, usize) {
        let start = (page as usize) << self.page_shift;
        let end = start + ((count as usize) << self.page_shift);
        let first = self.class.slot_of(start.saturating_sub(self.lead));
        let behind = self.class.slot_of(end - 1 - self.lead) + 1;
        let slots = self.slots() as usize;
        (first.min(slots), behind.min(slots))
    }

    /// The pages that the slots of word `index` of the bitmap touch.
    #[inline]
    pub(super) fn pages_of_word(self, index: usize) -> u64 {
        let last = (index * 64 + 63).min(self.slots() as usize - 1);
        self.pages_between(index * 64, last)
    }

    /// The pages from the first of slot `first` to the last of slot `last`.
    #[inline]
    fn pages_between(self, first: usize, last: usize) -> u64 {
        let size = self.class.size as usize;
        let first = (self.lead + first * size) >> self.page_shift;
        let last = (self.lead + last * size + size - 1) >> self.page_shift;
        mask(u32_of(first), u32_of(last - first + 1))
    }

    /// The pages that `slots` of word `index` of the bitmap touch; there is at least one.
    #[inline]
    pub(super) fn pages_of_slots(self, index: usize, mut slots: u64) -> u64 {
        let at = |bit: u32| index * 64 + bit as usize;
        let outer = self.pages_between(at(slots.trailing_zeros()), at(slots.ilog2()));
        // Slots smaller than a page leave none out between two that they touch, and neighbours leave out none.
        let are_neighbours = slots & slots.wrapping_add(slots & slots.wrapping_neg()) == 0;
        if are_neighbours || outer.count_ones() <= 2 {
            return outer;
        }
        let mut pages = 0;
        while slots != 0 {
            pages |= self.pages_of_slot(at(slots.trailing_zeros()));
            slots &= slots - 1;
        }
        pages
    }

    /// The slots of word `index` of the bitmap that touch one of `pages`.
    #[inline]
    pub(super) fn slots_of_word(self, index: usize, mut pages: u64) -> u64 {
        let (start, end) = (index * 64, index * 64 + 64);
        let mut slots = 0;
        while pages != 0 {
            let page = pages.trailing_zeros();
            let count = (pages >> page).trailing_ones();
            pages &= !mask(page, count);
            let (first, behind) = self.slots_on_pages(page, count);
            let (first, behind) = (first.clamp(start, end), behind.clamp(start, end));
            slots |= mask(u32_of(first - start), u32_of(behind - first));
        }
        slots
    }

    pub(super) fn words(self) -> usize {
        (self.class.slots as usize).div_ceil(64)
    }
}

/// `count` ones from bit `first` on.
pub const fn mask(first: u32, count: u32) -> u64 {
    let ones = if count >= 64 { u64::MAX } else { (1 << count) - 1 };
    if first >= 64 { 0 } else { ones << first }
}
