//! Lending: a bin whose slabs are nearly empty gives runs of neighbouring free slots to a larger
//! class, on pages that are resident already. So the holes between the survivors of one phase of a program
//! serve the next phase, whose blocks have other sizes, and no fresh page is touched.
//!
//! A lent block starts at a slot and covers the slots after it. These are its tails; a bitmap marks them. While a slab
//! lends, its entry in the byte map is 0, so every free of its blocks takes the slow path, where
//! [`Slab::slots_at`] finds out how many slots the block has. When the last lent block was freed, the byte map gets the
//! class again. The bitmap stays as long as the slab.
//!
//! A refill that would need a new slab tries this first (`cache/bins.rs`). What always holds: a tail's slot is not free,
//! and neither is the slot before it.

use super::bin::{Bin, Supply};
use super::shape::{Shape, mask};
use super::slab::Slab;
use super::slabs::Slabs;
use crate::arena::granule::{Granule, Kind, Room};
use crate::base::corrupt::{Corruption, corruption};
use crate::base::exact::u32_of;
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::os::Os;
use crate::size::CLASS;
use crate::slab::bin::Age;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

/// Slabs that one refill looks at. The next refill looks at the slabs after these.
const LOOK_AT: usize = 16;
/// A bin with fewer slabs does not lend: it has few free slots.
const LENDER_SLABS: usize = if cfg!(test) { 1 } else { 16 };
/// Most slots in a block. A run must lie in one word of the bitmap, and long runs are rare.
pub(super) const SLOTS_MAX: usize = 32;

/// The slots of a lender that a block of a larger class needs.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Neighbouring slots.
    pub(super) slots: u32,
    /// Alignment of the first one, in bytes: that of every slot of the borrower's class.
    pub(super) align: usize,
}

impl Run {
    /// The slots of class `lender` that a block of class `borrower` needs. `None` if the block is not a whole number of
    /// slots, or if the slots are too large or too small to lend.
    pub fn of(lender: usize, borrower: usize) -> Option<Self> {
        let (slot, block) = (CLASS[lender].size as usize, CLASS[borrower].size as usize);
        let slots = block / slot;
        let fits = (2..=SLOTS_MAX).contains(&slots) && slots * slot == block;
        (fits && lends(lender)).then_some(Self { slots: u32_of(slots), align: 1 << block.trailing_zeros() })
    }
}

/// Whether slots of `class` are small enough to be lent: there are so many in a slab that their bitmap is not in the
/// descriptor.
pub fn lends(class: usize) -> bool {
    CLASS[class].slots > 64
}

impl Bin {
    /// After slots of `class` came back: notes whether there may be something to lend.
    pub(super) fn note_lendable(&self, class: usize, slabs: &Slabs) {
        if lends(class) {
            self.may_lend.store(slabs.may_lend(), Ordering::Relaxed);
        }
    }

    /// Fills `out` with blocks of the shape `run`, as far as the emptiest slabs have such runs;
    /// returns how many.
    pub fn lend<O: Os>(&self, supply: &Supply<O>, class: usize, run: Run, out: &mut [*mut u8]) -> usize {
        if !self.may_lend.load(Ordering::Relaxed) {
            return 0;
        }
        let shape = Shape::new(class, supply.page_shift);
        let mut slabs = self.slabs.lock(supply.os);
        let mut lent = 0;
        let mut first = None;
        for _ in 0..LOOK_AT {
            if lent == out.len() {
                break;
            }
            let Some(slab) = slabs.next_lender() else {
                break;
            };
            if first == Some(slab) {
                // The walk has come round: all lenders were looked at.
                break;
            }
            first.get_or_insert(slab);
            // SAFETY: the lock is held, and the slab is one of this bin's.
            unsafe {
                if !slab.prepare_to_lend(supply, shape) {
                    return lent;
                }
                let now = slab.lend(shape, run, supply.tick, &mut out[lent..]);
                slab.show_class(supply, shape);
                slabs.slots_out += now * run.slots as usize;
                slabs.slots_taken += (now * run.slots as usize) as u64;
                lent += now;
                slabs.settle_room(slab, shape);
            }
        }
        if lent == 0 {
            // The next attempt is after slots have come back.
            self.may_lend.store(false, Ordering::Relaxed);
        }
        lent
    }

    /// Frees a lent block; ends the process if `address` is no such block. With [`Wait::No`] and the lock held, it does
    /// nothing and returns false.
    ///
    /// # Safety
    /// `head` is the head of a slab of `class` and this bin's shard, and `address` lies in it.
    pub unsafe fn take_back<O: Os>(
        &self,
        supply: &Supply<O>,
        class: usize,
        head: *mut Granule,
        address: usize,
        wait: Wait,
    ) -> bool {
        let shape = Shape::new(class, supply.page_shift);
        let Some(mut slabs) = self.slabs.lock_if(supply.os, wait) else {
            return false;
        };
        let slab = Slab(head);
        // SAFETY: the lock is held, and `head` is the head of a slab (fn contract). If the program freed a block twice, the slab
        // may be gone: the descriptor is still one, and the checks end the process.
        unsafe {
            if (*head).kind != Kind::Slab {
                corruption(supply.os, Corruption::DoubleFree, address);
            }
            if slabs.is_abandoned(slab) {
                slabs.count_back(slab.slots_at(shape, address).unwrap_or(0));
                return true;
            }
            let slots = match slab.take_back(shape, address) {
                Ok(slots) => slots,
                Err(what) => corruption(supply.os, what, address),
            };
            slab.show_class(supply, shape);
            slabs.count_back(slots);
            let bytes = slots * shape.class.size as usize;
            supply.arena.freed_bytes.fetch_add(bytes, Ordering::Relaxed);
            slabs.settle(supply, shape, slab, Age::Fresh, wait);
        }
        true
    }
}

impl Slabs {
    fn may_lend(&self) -> bool {
        self.slabs >= LENDER_SLABS && !self.rooms[Room::Much as usize].is_empty()
    }

    /// The next slab that lends. Lenders have more than half of their slots free: in fuller slabs runs are short, and
    /// their own class will need the slots. They take turns by address.
    fn next_lender(&mut self) -> Option<Slab> {
        let lenders = &self.rooms[Room::Much as usize];
        // SAFETY: the lock is held, as `&mut self` says, and the tree holds slabs of this bin.
        unsafe {
            let mut head = lenders.behind(self.lender);
            if head.is_null() {
                head = lenders.first();
            }
            if head.is_null() {
                return None;
            }
            self.lender = (*head).base;
            Some(Slab(head))
        }
    }
}

impl Slab {
    /// Gives the slab a bitmap of tails and removes its class from the byte map. False if there is no memory for the
    /// bitmap.
    unsafe fn prepare_to_lend<O: Os>(self, supply: &Supply<O>, shape: Shape) -> bool {
        // SAFETY: the caller holds the lock; the memory is as long as `words` says.
        unsafe {
            if (*self.0).tails.load(Ordering::Relaxed) == 0 {
                let bytes = shape.words() * size_of::<u64>();
                let Some(tails) = supply.metadata.allocate(supply.os, bytes, Wait::Yes) else {
                    return false;
                };
                tails.write_bytes(0, bytes);
                // Pairs with the acquire load in `tails`.
                (*self.0).tails.store(tails.as_ptr() as usize, Ordering::Release);
            }
            supply.arena.set_class((*self.0).base, 0);
        }
        true
    }

    /// Frees the bitmap of tails when the slab ends. `idle` as for [`Slab::destroy`].
    ///
    /// # Safety
    /// The slab is whole, its bin's lock is held, and it is not used afterwards.
    pub(super) unsafe fn forget_tails<O: Os>(self, os: &O, metadata: &Metadata, shape: Shape, idle: bool) {
        // SAFETY: the memory came from `prepare_to_lend`.
        unsafe {
            let tails = (*self.0).tails.swap(0, Ordering::Relaxed);
            if let Some(tails) = NonNull::new(tails as *mut u8) {
                metadata.free(os, tails, shape.words() * size_of::<u64>(), idle);
            }
        }
    }

    /// The bitmap of tails: written under the lock, read by the thread that frees a block. `None` if the slab
    /// never lent.
    unsafe fn tails<'a>(self, shape: Shape) -> Option<&'a [AtomicU64]> {
        // SAFETY: the slab is one; its memory holds as many words, until the slab is whole.
        unsafe {
            let tails = (*self.0).tails.load(Ordering::Acquire) as *const AtomicU64;
            (!tails.is_null()).then(|| core::slice::from_raw_parts(tails, shape.words()))
        }
    }

    /// Lends blocks from free slots on resident pages; returns how many.
    unsafe fn lend(self, shape: Shape, run: Run, tick: u32, out: &mut [*mut u8]) -> usize {
        let size = shape.class.size as usize;
        // SAFETY: only a bin that holds its lock lends, so bitmap and descriptor are this call's alone.
        let (bitmap, tails, base, resident) = unsafe {
            let Some(tails) = self.tails(shape) else {
                return 0;
            };
            (self.bitmap(shape), tails, (*self.0).base, (*self.0).resident)
        };
        let shape = shape.with_lead_of(base);
        let (mut lent, mut pages) = (0, 0);
        for (index, (word, tails)) in bitmap.iter_mut().zip(tails).enumerate() {
            if lent == out.len() {
                break;
            }
            if word.count_ones() < run.slots {
                continue;
            }
            let gone = shape.pages_of_word(index) & !resident;
            let mut starts = starts_of_runs(*word & !shape.slots_of_word(index, gone), run.slots);
            while starts != 0 && lent < out.len() {
                let bit = starts.trailing_zeros();
                let address = base + (index * 64 + bit as usize) * size;
                if !address.is_multiple_of(run.align) {
                    starts &= starts - 1;
                    continue;
                }
                let slots = mask(bit, run.slots);
                starts &= !mask(0, bit + run.slots);
                *word &= !slots;
                // Relaxed: a thread that reads the bits of a block got the block's address after this.
                tails.fetch_or(slots & (slots - 1), Ordering::Relaxed);
                pages |= shape.pages_of_slots(index, slots);
                out[lent] = address as *mut u8;
                lent += 1;
            }
        }
        // SAFETY: only a bin that holds its lock lends, so the descriptor is this call's alone.
        unsafe {
            (*self.0).free -= u32_of(lent) * run.slots;
            self.touch(pages, tick);
        }
        lent
    }

    /// How many slots the live block at `address` has. `None` if no block can start there, or the slab never lent. Needs no
    /// lock.
    ///
    /// # Safety
    /// The slab is one of the shape's class, and `address` lies in it.
    pub unsafe fn slots_at(self, shape: Shape, address: usize) -> Option<usize> {
        // SAFETY: the slab is one (fn contract), so it has a base, which does not change; bitmaps of tails are never
        // returned while it is a slab.
        let (tails, base) = unsafe { (self.tails(shape)?, (*self.0).base) };
        let offset = address.checked_sub(base)?;
        let slot = shape.class.slot_of(offset);
        let slots = shape.with_lead_of(base).slots() as usize;
        if slot * shape.class.size as usize != offset || slot >= slots {
            return None;
        }
        // A block lies in one word, and its bits do not change while it is live.
        let behind = tails[slot / 64].load(Ordering::Relaxed) >> (slot % 64);
        (behind & 1 == 0).then_some(1 + (behind >> 1).trailing_ones() as usize)
    }

    /// Frees the slots of the block at `address`; how many, or what is wrong with it.
    unsafe fn take_back(self, shape: Shape, address: usize) -> Result<usize, Corruption> {
        // SAFETY: the caller holds the bin's lock, and `address` lies in the slab, since the caller found the slab by
        // it.
        unsafe {
            let Some(slots) = self.slots_at(shape, address) else {
                return Err(Corruption::InteriorPointer);
            };
            let shape = self.shape(shape);
            let slot = shape.class.slot_of(address - (*self.0).base);
            let (index, block) = (slot / 64, mask(u32_of(slot % 64), u32_of(slots)));
            let word = &mut self.bitmap(shape)[index];
            let leaving = (*self.0).leaving & shape.pages_of_slots(index, block) != 0;
            if leaving || *word & block != 0 {
                return Err(Corruption::DoubleFree);
            }
            *word |= block;
            (*self.0).free += u32_of(slots);
            if let Some(tails) = self.tails(shape)
                && !cfg!(ebb_mutation = "lent_tails")
            {
                tails[index].fetch_and(!(block & (block - 1)), Ordering::Relaxed);
            }
            Ok(slots)
        }
    }

    /// Enters the class into the byte map again if no lent block is live.
    unsafe fn show_class<O: Os>(self, supply: &Supply<O>, shape: Shape) {
        // SAFETY: the caller holds the bin's lock, under which alone the descriptor changes; the class is entered at
        // the slab's own base.
        unsafe {
            let tails = self.tails(shape).unwrap_or_default();
            if tails.iter().all(|word| word.load(Ordering::Relaxed) == 0) {
                supply.arena.set_class((*self.0).base, (*self.0).class);
            }
        }
    }

    /// Checks the invariant at the head of this file.
    ///
    /// # Safety
    /// The bin's lock is held.
    #[cfg(any(test, loom))]
    pub(super) unsafe fn validate_tails(self, shape: Shape) {
        // SAFETY: the bin's lock is held (fn contract), so no slot changes hands meanwhile.
        unsafe {
            for (index, tails) in self.tails(shape).into_iter().flatten().enumerate() {
                let tails = tails.load(Ordering::Relaxed);
                assert_eq!(tails & self.bitmap(shape)[index], 0, "a tail is free");
                assert_eq!(tails >> 1 & self.bitmap(shape)[index], 0, "a tail without a block");
            }
        }
    }
}

/// The bits of `free` at which a run of at least `ones` ones begins.
fn starts_of_runs(free: u64, ones: u32) -> u64 {
    let (mut starts, mut have) = (free, 1);
    while have < ones {
        // If a run of `have` begins at a bit, and another one `step` bits later, a run of `have + step` begins there.
        let step = have.min(ones - have);
        starts &= starts >> step;
        have += step;
    }
    starts
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::size::{CLASSES, SMALL_MAX};

    #[test]
    fn runs_begin_where_as_many_ones_follow() {
        assert_eq!(starts_of_runs(0b0111_0110, 1), 0b0111_0110);
        assert_eq!(starts_of_runs(0b0111_0110, 2), 0b0011_0010);
        assert_eq!(starts_of_runs(0b0111_0110, 3), 0b0001_0000);
        assert_eq!(starts_of_runs(0b0111_0110, 4), 0);
        for ones in 1..=SLOTS_MAX as u32 {
            assert_eq!(starts_of_runs(u64::MAX, ones), mask(0, 65 - ones));
            assert_eq!(starts_of_runs(mask(7, ones), ones), 1 << 7);
            assert_eq!(starts_of_runs(mask(7, ones - 1), ones), 0);
        }
    }

    #[test]
    fn a_run_is_as_long_as_the_block_and_aligned_as_its_class() {
        let mut pairs = 0;
        for borrower in 1..=CLASSES {
            for lender in 1..borrower {
                let Some(run) = Run::of(lender, borrower) else {
                    continue;
                };
                let (slot, block) = (CLASS[lender].size, CLASS[borrower].size);
                assert_eq!(run.slots * slot, block);
                assert!(run.slots >= 2 && run.slots as usize <= SLOTS_MAX);
                assert!((block as usize).is_multiple_of(run.align) && run.align < SMALL_MAX * 2);
                // Slabs of lenders are one granule: `place_in_lender` builds on it.
                assert_eq!(CLASS[lender].granules, 1);
                pairs += 1;
            }
        }
        assert!(pairs > 0);
    }
}
