//! A slab: granules cut into slots of one class, with a bitmap of free slots and bitmaps of pages.
//!
//! Everything is in the descriptor and in metadata memory; a free slot's own bytes are never
//! touched. All functions here need the lock of the slab's bin.
//!
//! What always holds: a slot is in use, in a thread's cache, or free. Free slots have their bit set, except slots on pages in
//! `leaving`: their bits are clear until the pages have been returned. `free` counts the bits. A page outside `resident`
//! holds no data that is read.

use super::shape::{Shape, mask};
use crate::arena::granule::Granule;
use crate::base::corrupt::Corruption;
use crate::base::exact::u32_of;
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::os::Os;
use crate::size::GRANULE;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

/// A slab under its bin's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab(pub *mut Granule);

impl Slab {
    /// `shape` with this slab's own lead.
    ///
    /// # Safety
    /// The slab is one.
    #[inline]
    pub(super) unsafe fn shape(self, shape: Shape) -> Shape {
        // SAFETY: the slab is one (fn contract), and the base of a slab does not change.
        shape.with_lead_of(unsafe { (*self.0).base })
    }

    /// Whether all slots are free.
    ///
    /// # Safety
    /// The bin's lock is held, and the slab is of the shape's class.
    pub(super) unsafe fn is_whole(self, shape: Shape) -> bool {
        // SAFETY: the lock is held, and the slab is one (fn contract).
        unsafe { (*self.0).free == self.shape(shape).slots() }
    }

    /// Makes a slab of fresh granules, with all slots free. `dirty` says that its pages may be
    /// resident; the shape says whether it has a lead. False if there is no metadata memory for the bitmap.
    ///
    /// # Safety
    /// The granules belong to the caller alone, and its bin's lock is held.
    pub unsafe fn create<O: Os>(self, os: &O, metadata: &Metadata, shape: Shape, dirty: bool, wait: Wait) -> bool {
        let slots = shape.slots();
        // SAFETY: the granules are a new slab's and the caller's (fn contract); an outside bitmap is as long as `words` says.
        unsafe {
            let slab = &mut *self.0;
            slab.free = slots;
            slab.resident = if dirty { shape.all_pages() } else { 0 };
            slab.used = slab.resident;
            slab.seen = 0;
            slab.touched = 0;
            slab.stamp = 0;
            slab.leaving = 0;
            slab.listed = false;
            slab.locked = false;
            slab.tails.store(0, Ordering::Relaxed);
            if shape.class.slots <= 64 {
                slab.bits = mask(0, slots);
                return true;
            }
            let Some(bitmap) = metadata.allocate(os, shape.words() * 8, wait) else {
                return false;
            };
            slab.bits = bitmap.as_ptr() as u64;
            slab.base += shape.lead;
            for (index, word) in self.bitmap(shape).iter_mut().enumerate() {
                *word = mask(0, slots.saturating_sub(u32_of(index) * 64));
            }
        }
        true
    }

    /// Frees the bitmap, when the slab's granules are returned to the arena; `idle` says that no thread used the slab
    /// since the last tick.
    ///
    /// # Safety
    /// The slab is whole (all slots free) and not used afterwards.
    pub unsafe fn destroy<O: Os>(self, os: &O, metadata: &Metadata, shape: Shape, idle: bool) {
        // SAFETY: the slab is whole, so no lent block is out, and no thread uses it afterwards (fn contract).
        unsafe { self.forget_tails(os, metadata, shape, idle) };
        if shape.class.slots > 64 {
            // SAFETY: the bitmap came from `create`, and the slab is not used any more.
            unsafe {
                (*self.0).base -= self.shape(shape).lead;
                if let Some(bitmap) = NonNull::new((*self.0).bits as *mut u8) {
                    metadata.free(os, bitmap, shape.words() * 8, idle);
                }
            }
        }
    }

    /// The bitmap of free slots.
    ///
    /// # Safety
    /// The bin's lock is held, and no other bitmap of this slab is borrowed.
    pub unsafe fn bitmap<'a>(self, shape: Shape) -> &'a mut [u64] {
        // SAFETY: up to 64 slots the word is in the descriptor, else `bits` is the address of
        // `words` words that belong to this slab alone.
        unsafe {
            if shape.class.slots <= 64 {
                core::slice::from_mut(&mut (*self.0).bits)
            } else {
                core::slice::from_raw_parts_mut((*self.0).bits as *mut u64, shape.words())
            }
        }
    }

    /// Takes up to `out.len()` free slots, those on resident pages first, then by address; returns
    /// how many. The pages they touch are resident from now on, and marked as touched at `tick`.
    ///
    /// # Safety
    /// The bin's lock is held.
    pub unsafe fn take(self, shape: Shape, tick: u32, out: &mut [*mut u8]) -> usize {
        // SAFETY: the lock is held.
        let (shape, resident, base) = unsafe { (self.shape(shape), (*self.0).resident, (*self.0).base) };
        let mut taken = 0;
        let mut pages = 0;
        let all = shape.all_pages();
        if resident & all != 0 && resident & all != all {
            // SAFETY: the lock is held.
            unsafe { self.take_where(shape, resident, base, out, &mut taken, &mut pages) };
        }
        // SAFETY: the lock is held.
        unsafe {
            if taken < out.len() {
                self.take_where(shape, u64::MAX, base, out, &mut taken, &mut pages);
            }
            let slab = &mut *self.0;
            slab.free -= u32_of(taken);
            slab.resident |= pages;
            slab.used |= pages;
            self.touch(pages, tick);
        }
        taken
    }

    /// Remembers that slots on `pages` were taken at `tick`.
    ///
    /// # Safety
    /// The bin's lock is held.
    pub(super) unsafe fn touch(self, pages: u64, tick: u32) {
        // SAFETY: the lock is held.
        let slab = unsafe { &mut *self.0 };
        if slab.stamp != tick {
            slab.stamp = tick;
            slab.touched = 0;
        }
        slab.touched |= pages;
        slab.seen &= !pages;
    }

    /// The pages from which a slot was taken since the tick before `tick`.
    ///
    /// # Safety
    /// The bin's lock is held.
    pub unsafe fn touched_since(self, tick: u32) -> u64 {
        // SAFETY: the lock is held.
        unsafe { if tick.wrapping_sub((*self.0).stamp) <= 1 { (*self.0).touched } else { 0 } }
    }

    /// Takes free slots all of whose pages are in `allowed`.
    unsafe fn take_where(
        self,
        shape: Shape,
        allowed: u64,
        base: usize,
        out: &mut [*mut u8],
        taken: &mut usize,
        pages: &mut u64,
    ) {
        let size = shape.class.size as usize;
        let few = out.len() <= 8;
        // SAFETY: the lock is held by the caller of `take`.
        let bitmap = unsafe { self.bitmap(shape) };
        for (index, word) in bitmap.iter_mut().enumerate() {
            if *taken == out.len() {
                return;
            }
            if *word == 0 {
                continue;
            }
            let first = base + index * 64 * size;
            // The lowest slots of `free` go out; returns which those are.
            let mut hand_out = |free: u64| {
                let mut left = free;
                for place in &mut out[*taken..] {
                    if left == 0 {
                        break;
                    }
                    *place = (first + left.trailing_zeros() as usize * size) as *mut u8;
                    left &= left - 1;
                }
                free & !left
            };
            let on_allowed = |free| free & !shape.slots_of_word(index, shape.pages_of_word(index) & !allowed);
            // Few slots most often lie on allowed pages, and if not are handed out again.
            let is_sure = few || allowed == u64::MAX;
            let mut gone = hand_out(if is_sure { *word } else { on_allowed(*word) });
            if gone == 0 {
                continue;
            }
            let mut touched = shape.pages_of_slots(index, gone);
            if touched & !allowed != 0 {
                gone = hand_out(on_allowed(*word));
                if gone == 0 {
                    continue;
                }
                touched = shape.pages_of_slots(index, gone);
            }
            *taken += gone.count_ones() as usize;
            *word &= !gone;
            *pages |= touched;
        }
    }

    /// Makes slots free, given by their addresses: the first of `slots`, and those after it until one lies in another slab;
    /// returns how many. If an address is no slot in use, returns the error and the address.
    ///
    /// # Safety
    /// The bin's lock is held, the slab is of the shape's class, and there is a slot.
    #[inline(always)]
    pub unsafe fn put(self, shape: Shape, slots: &[*mut u8]) -> Result<usize, (Corruption, usize)> {
        let size = shape.class.size as usize;
        // SAFETY: the lock is held; the bitmap has a bit for each slot up to the one at `last`.
        unsafe {
            let shape = self.shape(shape);
            let (base, leaving) = ((*self.0).base, (*self.0).leaving);
            let behind = shape.class.granules as usize * GRANULE - shape.lead;
            let last = behind - size;
            let bitmap = self.bitmap(shape).as_mut_ptr();
            for (done, &address) in slots.iter().enumerate() {
                let offset = (address as usize).wrapping_sub(base);
                if offset >= behind && done > 0 {
                    (*self.0).free += u32_of(done);
                    return Ok(done);
                }
                let slot = shape.class.slot_of(offset);
                if slot * size != offset || offset > last {
                    return Err((Corruption::InteriorPointer, address as usize));
                }
                let (word, bit) = (&mut *bitmap.add(slot / 64), 1 << (slot % 64));
                let leaves = leaving != 0 && shape.pages_of_slot(slot) & leaving != 0;
                if leaves || *word & bit != 0 {
                    return Err((Corruption::DoubleFree, address as usize));
                }
                *word |= bit;
            }
            (*self.0).free += u32_of(slots.len());
            Ok(slots.len())
        }
    }
}

#[cfg(test)]
mod tests;
