//! Rations: how the allocations of a thread are counted without an instruction on its fast path, for the
//! heap profile.
//!
//! A thread that takes and frees one block for ever lives on its stack, so refills say nothing of what it
//! allocates. A rationed cache has a second stack of each quick class, the ration: malloc pops from it,
//! since the cache's quick table leads to its words, while free pushes to the first, as ever. What is
//! popped from a ration does not come back to it; when it is used up, the slow path cuts the next one
//! off the first stack. So a ration of n slots is n allocations, counted at once, and none reaches
//! beyond the next allocation to be sampled. The profile says how many are ahead of that one.
//!
//! Called by `transfer` and `drain`, and by the profile for [`Cache::ahead`]. What lies in a ration was
//! counted when it was cut off, and is counted back when a drain takes it.

use super::bins::Bins;
use super::cache::{Cache, Entered, QUICK_CLASSES};
use super::stack::Entry;
pub use super::stack::RATIONED;
use crate::base::exact::{u8_of, u16_of, usize_of};
use crate::base::sync::{Ordering, compiler_fence};
use crate::os::Os;
use crate::size::{CLASS, CLASSES, QUANTUM, QUICK_MAX};
use crate::slab::bin::Supply;
use core::ptr::{NonNull, null_mut};

/// Slots in a ration at most: enough that the slow path costs a thread some three instructions an
/// allocation.
const MOST: usize = 64;
/// What a ration has goes round in the processor's cache, so it should be little there.
const MOST_BYTES: usize = 4096;
/// No ration is planned smaller.
const LEAST: usize = 8;

const fn slots_of(class: usize) -> usize {
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
const START: [u16; RATIONED + 2] = {
    let mut start = [0; RATIONED + 2];
    let mut class = 1;
    while class <= RATIONED {
        start[class + 1] = start[class] + u16_of(slots_of(class));
        class += 1;
    }
    start
};

/// What a rationed cache has next to its stacks.
#[derive(Debug)]
pub struct Rations {
    /// Allocations between the ration of a class and the next one to be sampled; [`UNKNOWN`] until the
    /// profile has set it.
    ahead: [u64; RATIONED + 1],
    slots: [Entry; START[RATIONED + 1] as usize],
}

const UNKNOWN: u64 = u64::MAX;

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

impl Cache {
    /// Takes the newest slot of `class`, which was not looked up in the quick table; `None` as for
    /// [`Cache::pop_quick`], and if the cache is rationed.
    #[inline(always)]
    pub fn pop_unrationed(&self, class: usize) -> Option<NonNull<u8>> {
        // Class 0 has nothing. SAFETY: only the calling thread writes the word.
        self.pop(class & self.unrationed.with(|mask| unsafe { *mask }))
    }

    /// Whether the quick classes are taken from rations.
    #[inline(always)]
    pub fn is_rationed(&self) -> bool {
        // SAFETY: only the owner writes the word, and it does not while another has seized the cache.
        self.unrationed.with(|mask| unsafe { *mask == 0 })
    }

    /// From now on slots of the quick classes are taken from rations, which are empty.
    ///
    /// # Safety
    /// The caller, the owner, has entered the cache, and `rations` are made and stay until
    /// [`Cache::end_rations`].
    pub unsafe fn start_rations(&self, rations: NonNull<Rations>) {
        let quick = core::array::from_fn(|index| u8_of(ration_of(QUICK_CLASSES[index] as usize)));
        // SAFETY: the owner has entered the cache, and the rations stay as long as they are set (fn contract).
        unsafe { self.set_rations(quick, 0, rations.as_ptr()) };
    }

    /// From now on they are taken from the stacks again.
    ///
    /// # Safety
    /// The caller, the owner, has entered the cache and drained it of everything.
    pub unsafe fn end_rations(&self) {
        // SAFETY: the owner has entered the cache and drained it (fn contract), so no ration holds a slot.
        unsafe { self.set_rations(QUICK_CLASSES, usize::MAX, null_mut()) };
    }

    unsafe fn set_rations(&self, quick: [u8; QUICK_MAX / QUANTUM + 1], unrationed: usize, rations: *mut Rations) {
        // SAFETY: the callers have entered the cache, on the thread that owns it.
        unsafe {
            self.rations.with_mut(|word| *word = rations.cast());
            self.unrationed.with_mut(|word| *word = unrationed);
            self.quick.with_mut(|table| *table = quick);
        }
    }

    /// The rations, or null.
    ///
    /// # Safety
    /// The caller has entered or seized the cache.
    unsafe fn rations(&self) -> *mut Rations {
        // SAFETY: the caller has entered or seized the cache (fn contract), so stacks and words are its alone.
        self.rations.with(|word| unsafe { *word }).cast()
    }

    /// Calls `work` with the top and the bottom of a class's ration. The caller has entered or seized the
    /// cache.
    fn with_ration<R>(&self, class: usize, work: impl FnOnce(&mut *mut Entry, &mut *mut Entry) -> R) -> R {
        debug_assert!((1..=RATIONED).contains(&class));
        // SAFETY: the caller has the cache to itself.
        self.stacks.with_mut(|stacks| unsafe {
            let stacks = &mut *stacks;
            let place = ration_of(class);
            work(&mut stacks.top[place], &mut stacks.low[place])
        })
    }

    /// Allocations of a rationed class ahead of the next one to be sampled, which is the next if there
    /// are none; `None` if that was not said.
    ///
    /// # Safety
    /// The caller has entered the cache, and it is rationed.
    pub unsafe fn ahead(&self, class: usize) -> Option<u64> {
        let held = self.ration_len(class) as u64;
        // SAFETY: the owner has entered the cache, which is rationed (fn contract), so there are rations and they are
        // its alone.
        let ahead = unsafe { (*self.rations()).ahead[class] };
        (ahead != UNKNOWN).then(|| ahead.saturating_add(held))
    }

    /// Says how many allocations are ahead of the next one to be sampled.
    ///
    /// # Safety
    /// As for [`Cache::ahead`]; the class's ration is used up.
    pub unsafe fn set_ahead(&self, class: usize, ahead: Option<u64>) {
        // SAFETY: the owner has entered the cache, which is rationed (contract of `ahead`), so there are rations and
        // they are its alone.
        unsafe { (*self.rations()).ahead[class] = ahead.unwrap_or(UNKNOWN) };
    }

    /// Takes a slot of a rationed class that comes off the stack with the next ration. `None` if the slow
    /// path must be taken: there is too little on the stack, or the next allocation is one to be sampled.
    pub fn pop_next_ration(&self, class: usize) -> Option<NonNull<u8>> {
        if self.enter() != Entered::Mine {
            return None;
        }
        // A signal handler may have ended the rations since the owner looked.
        // SAFETY: entered, and rationed.
        let slot = if self.is_rationed() { unsafe { self.cut_quickly(class) } } else { None };
        self.leave();
        slot
    }

    /// # Safety
    /// As for [`Cache::ahead`].
    #[inline(always)]
    unsafe fn cut_quickly(&self, class: usize) -> Option<NonNull<u8>> {
        // SAFETY: the owner has entered its rationed cache (contract of `ahead`). The entries of a ration are slots, none of them at address 0.
        unsafe {
            let ahead = (*self.rations()).ahead[class];
            let most = slots_of(class).min(usize_of(ahead));
            let enough = self.with_stack(class, |stack, _| 2 * stack.len() >= most);
            if ahead == UNKNOWN || most == 0 || !enough || self.ration_len(class) > 0 {
                return None;
            }
            self.cut(class, most);
            Some(NonNull::new_unchecked(self.pop_cut(class)))
        }
    }

    /// Takes a slot of a rationed class, cutting off the next ration if this one is used up. Null if
    /// there is no memory.
    ///
    /// # Safety
    /// As for [`Cache::ahead`].
    pub(super) unsafe fn pop_ration<O: Os>(&self, supply: &Supply<O>, bins: &Bins, class: usize) -> *mut u8 {
        // SAFETY: the owner has entered the cache, which is rationed (contract of `ahead`).
        unsafe {
            if self.ration_len(class) == 0 {
                // Nothing is ahead if a request of a signal handler came between the question and this
                // one, which is not counted then.
                let ahead = (*self.rations()).ahead[class];
                let most = slots_of(class).min(usize_of(ahead)).max(1);
                let closed = self.with_stack(class, |stack, demand| {
                    if !stack.is_closed() && 2 * stack.len() < most.max(2) {
                        self.refill(supply, bins, class, stack, demand);
                    }
                    stack.is_closed()
                });
                if closed {
                    let mut alone = [null_mut()];
                    bins.refill(supply, self, class, &mut alone);
                    self.count_off(class, 1);
                    return alone[0];
                }
                if self.cut(class, most) == 0 {
                    return null_mut();
                }
            }
            self.pop_cut(class)
        }
    }

    /// Fills an empty ration with at most `most` slots of the stack; returns how many.
    #[inline(always)]
    unsafe fn cut(&self, class: usize, most: usize) -> usize {
        // SAFETY: the callers have entered the cache, which is rationed: the cells are ours. The places
        // of a class's ration are as many as `slots_of` says, which bounds `most`.
        unsafe {
            let slots = (&raw mut (*self.rations()).slots).cast::<Entry>();
            let start = slots.add(START[class] as usize);
            let count = self.with_stack(class, |stack, _| {
                let count = match stack.len().min(most) {
                    few @ ..BLOCK => few,
                    many => many / BLOCK * BLOCK,
                };
                stack.top = stack.top.wrapping_sub(count);
                stack.low = stack.low.min(stack.top);
                copy(stack.top, start, count);
                count
            });
            self.count_off(class, count);
            self.with_ration(class, |top, low| {
                *low = start;
                *top = start.wrapping_add(count);
            });
            count
        }
    }

    /// Takes a slot of a ration that is not empty.
    #[inline(always)]
    unsafe fn pop_cut(&self, class: usize) -> *mut u8 {
        self.with_ration(class, |top, _| {
            *top = top.wrapping_sub(1);
            // SAFETY: the callers have seen that the ration holds a slot.
            unsafe { **top }
        })
    }

    /// So many allocations were ahead of the next one to be sampled, and are not any more.
    #[inline(always)]
    unsafe fn count_off(&self, class: usize, count: usize) {
        // SAFETY: the callers have entered the cache, which is rationed.
        let ahead = unsafe { &mut (*self.rations()).ahead[class] };
        if *ahead != UNKNOWN {
            *ahead = ahead.saturating_sub(count as u64);
        }
    }

    /// Empties a ration, and counts what it held back. That is the caller's now.
    ///
    /// # Safety
    /// The caller has entered or seized the cache; the answer is used before it is left.
    pub(super) unsafe fn recall_ration(&self, class: usize) -> &[Entry] {
        let held = self.ration_len(class);
        if held == 0 {
            return &[];
        }
        let slots = self.with_ration(class, |top, low| {
            *top = *low;
            *low
        });
        // SAFETY: a cache that holds a ration is rationed; its entries lie between both words.
        unsafe {
            let ahead = &mut (*self.rations()).ahead[class];
            if *ahead != UNKNOWN {
                *ahead = ahead.saturating_add(held as u64);
            }
            core::slice::from_raw_parts(slots, held)
        }
    }

    /// Slots in the ration of a class; 0 for a class that has none.
    pub(super) fn ration_len(&self, class: usize) -> usize {
        if class > RATIONED {
            return 0;
        }
        let bytes = self.with_ration(class, |top, low| *top as usize - *low as usize);
        bytes / size_of::<Entry>()
    }
}

/// Entries that are copied at once.
const BLOCK: usize = 8;

/// Copies fewer than a block of entries, or whole blocks.
///
/// # Safety
/// Both places are good for `count` entries and do not overlap.
#[inline(always)]
unsafe fn copy(from: *const Entry, to: *mut Entry, count: usize) {
    // SAFETY: both places are good for `count` entries and do not overlap (fn contract).
    unsafe {
        if count < BLOCK {
            return core::ptr::copy_nonoverlapping(from, to, count);
        }
        for at in (0..count).step_by(BLOCK) {
            core::ptr::copy_nonoverlapping(from.add(at), to.add(at), BLOCK);
            // Keeps the compiler from making a call of memcpy of the loop: its string instruction takes
            // longer to start than this takes.
            compiler_fence(Ordering::SeqCst);
        }
    }
}

/// Where the words of a class's ration are, after those of the stacks.
const fn ration_of(class: usize) -> usize {
    CLASSES + class
}
