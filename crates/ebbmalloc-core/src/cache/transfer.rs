//! Fill and flush: slots between a cache and the bins, in batches, so that a lock is worth taking.

use super::bins::Bins;
use super::cache::{Cache, Refills};
use super::ration::RATIONED;
use super::stack::{Demand, Entry, Stack};
use crate::base::corrupt::{Corruption, corruption};
use crate::base::exact::u16_of;
use crate::base::lock::Wait;
use crate::os::Os;
use crate::size::{CLASS, CLASSES, QUANTUM};
use crate::slab::bin::{Age, Supply};
use core::ptr::null_mut;

/// Stacks that are compared at once with what they were.
const GROUP: usize = 8;

/// A cache is looked at for wrong frees at so many refills, and then at one in [`RARELY`]: a look at each took 4 % of the
/// instructions of *mixed*.
const ALWAYS: u32 = 32;
const RARELY: u32 = 16;

/// Slots of a stack that are looked at for wrong frees: six comparisons.
const LOOKED_AT: usize = 4;

/// The lower half of a stack's top, as a number of entries. It changes when the top moves, unless by a multiple of 65,536.
fn low_bits(top: *mut Entry) -> u16 {
    u16_of(top as usize / size_of::<Entry>() % (1 << u16::BITS))
}

/// Ends the process if one of the newest slots on a stack is there twice, or is none.
///
/// # Safety
/// The caller has entered the cache.
unsafe fn end_if_wrong<O: Os>(os: &O, stack: &Stack) {
    let count = stack.len().min(LOOKED_AT);
    // SAFETY: the caller has entered the cache (fn contract), and the entries between base and top are initialised.
    let newest = unsafe { core::slice::from_raw_parts(stack.top.wrapping_sub(count), count) };
    for (index, &slot) in newest.iter().enumerate() {
        if !(slot as usize).is_multiple_of(QUANTUM) {
            corruption(os, Corruption::InteriorPointer, slot as usize);
        }
        if newest[..index].contains(&slot) {
            corruption(os, Corruption::DoubleFree, slot as usize);
        }
    }
}

impl Cache {
    /// Lets the stack of `class` grow, and counts its new room in the arena.
    ///
    /// # Safety
    /// The caller has entered the cache, and `stack` is its stack of `class`.
    unsafe fn grow<O: Os>(&self, supply: &Supply<O>, class: usize, stack: &mut Stack) {
        // SAFETY: the owner has entered the cache, and `stack` is its stack of `class` (fn contract).
        let room = unsafe { stack.grow(supply.os, supply.metadata, self.first_stacks(), class) };
        supply.arena.note_room(room);
    }

    /// Whether it was refilled with `bytes` bytes since the answer was yes. Called by the owner; a signal handler in between
    /// costs some bytes.
    #[inline]
    pub fn was_filled(&self, bytes: usize) -> bool {
        self.refills.with_mut(|refills| {
            // SAFETY: only the owner writes the word, and to none of the caches that threads share.
            let filled = unsafe { &mut (*refills).bytes };
            let was = *filled >= bytes;
            if was {
                *filled = 0;
            }
            was
        })
    }

    /// Ends the process if one of the slots that the thread freed last was freed twice, or is none. Looks at stacks that
    /// have changed since the last look.
    ///
    /// # Safety
    /// The caller has entered the cache.
    pub(super) unsafe fn check_newest<O: Os>(&self, os: &O) {
        // SAFETY: the caller has entered the cache (fn contract), so stacks and words are its alone.
        unsafe {
            self.refills.with_mut(|refills| {
                let Refills { tops: noted, .. } = &mut *refills;
                self.stacks.with(|stacks| {
                    let tops = (&(*stacks).top)[1..=CLASSES].chunks(GROUP);
                    for (group, (tops, noted)) in tops.zip(noted.chunks_mut(GROUP)).enumerate() {
                        let pairs = || tops.iter().map(|&top| low_bits(top)).zip(noted.iter());
                        if pairs().fold(0, |all, (top, noted)| all | top ^ noted) == 0 {
                            continue;
                        }
                        for (at, (&top, noted)) in tops.iter().zip(noted).enumerate() {
                            if low_bits(top) != *noted {
                                *noted = low_bits(top);
                                end_if_wrong(os, &(*stacks).get(1 + group * GROUP + at));
                            }
                        }
                    }
                });
            });
        }
    }

    /// Takes a slot of `class`, refilling the stack if it is empty. Null if there is no memory.
    ///
    /// # Safety
    /// The caller has entered the cache.
    pub unsafe fn pop_or_refill<O: Os>(&self, supply: &Supply<O>, bins: &Bins, class: usize) -> *mut u8 {
        // SAFETY: the caller has entered the cache (fn contract), so stacks and words are its alone.
        unsafe {
            let refills = self.refills.with(|refills| (*refills).count);
            if refills <= ALWAYS || refills.is_multiple_of(RARELY) {
                self.check_newest(supply.os);
            }
            if class <= RATIONED && self.is_rationed() {
                return self.pop_ration(supply, bins, class);
            }
            self.with_stack(class, |stack, demand| {
                if stack.is_closed() {
                    let mut slot = [null_mut()];
                    bins.refill(supply, self, class, &mut slot);
                    return slot[0];
                }
                if stack.is_empty() {
                    if !self.refill(supply, bins, class, stack, demand) {
                        return null_mut();
                    }
                } else if stack.top == stack.low {
                    let rest = stack.cold().saturating_sub(demand.lower());
                    stack.low = stack.base.wrapping_add(rest);
                }
                stack.top = stack.top.wrapping_sub(1);
                stack.low = stack.low.min(stack.top);
                *stack.top
            })
        }
    }

    /// Puts a batch of slots from the bins on a stack; false if there is no memory, or no room.
    ///
    /// # Safety
    /// The caller has entered the cache, and `stack` is its stack of `class`.
    pub(super) unsafe fn refill<O: Os>(
        &self,
        supply: &Supply<O>,
        bins: &Bins,
        class: usize,
        stack: &mut Stack,
        demand: &mut Demand,
    ) -> bool {
        // SAFETY: the owner has entered the cache, and `stack` is its stack of `class` (fn contract); the words between top and full are the stack's.
        unsafe {
            if demand.batch as usize > stack.capacity() / 2 {
                self.grow(supply, class, stack);
            }
            let want = (demand.batch as usize).min(stack.capacity() / 2).max(1);
            let want = want.min(stack.capacity() - stack.len());
            demand.refilled();
            let out = core::slice::from_raw_parts_mut(stack.top, want);
            let got = bins.refill(supply, self, class, out);
            // The lowest address is handed out first.
            out[..got].reverse();
            stack.top = stack.top.wrapping_add(got);
            self.refills.with_mut(|refills| {
                (*refills).bytes += got * CLASS[class].size as usize;
                (*refills).count = (*refills).count.wrapping_add(1);
            });
            got > 0
        }
    }

    /// Keeps a slot of `class`. If the stack is full, its older half is flushed, and more if the thread frees many more slots
    /// than it takes.
    ///
    /// # Safety
    /// The caller has entered the cache, and the byte map says `class` for `slot`.
    pub unsafe fn push_or_flush<O: Os>(&self, supply: &Supply<O>, bins: &Bins, class: usize, slot: *mut u8) {
        // SAFETY: the owner has entered the cache, and the byte map says `class` (fn contract); the word before an empty stack's base is readable.
        unsafe {
            self.with_stack(class, |stack, demand| {
                if stack.is_closed() {
                    bins.put(supply, class, &[slot], Age::Fresh, Wait::Yes);
                    return;
                }
                if *stack.top.wrapping_sub(1) == slot {
                    corruption(supply.os, Corruption::DoubleFree, slot as usize);
                }
                if stack.top == stack.full && stack.should_grow(class, *demand) {
                    self.grow(supply, class, stack);
                    demand.ran_dry = false;
                }
                if stack.top == stack.full {
                    let modest = Stack::modest_words(class);
                    let cut = demand.frees_a_mass() && stack.capacity() >= modest;
                    // Half of the later capacity stays, so that the stack is not full again at once.
                    let room = if cut { modest - 1 } else { stack.len() };
                    let count = stack.len() - room / 2;
                    bins.put(supply, class, stack.oldest(count), Age::Fresh, Wait::Yes);
                    stack.drop_oldest(count);
                    demand.flushed();
                    if cut {
                        let memory = self.first_stacks();
                        stack.move_to(supply.os, supply.metadata, memory, class, modest);
                    }
                }
                debug_assert!(stack.top < stack.full);
                *stack.top = slot;
                stack.top = stack.top.wrapping_add(1);
            });
        }
    }

    /// Puts all slots back at the end of the process, which finds wrong frees. It does not wait for locks: slots whose bin is
    /// locked are lost.
    ///
    /// # Safety
    /// The caller has entered the cache.
    pub unsafe fn put_back_at_exit<O: Os>(&self, supply: &Supply<O>, bins: &Bins) {
        for class in 1..=CLASSES {
            // SAFETY: the fn contract; the byte map says `class` for what is on the stack of a class.
            unsafe {
                bins.put(supply, class, self.recall_ration(class), Age::Fresh, Wait::No);
                self.with_stack(class, |stack, _| {
                    let count = stack.len();
                    bins.put(supply, class, stack.oldest(count), Age::Fresh, Wait::No);
                    stack.drop_oldest(count);
                });
            }
        }
    }

    /// From now on only slots of classes up to `most` are kept. Cached slots of other classes are put back.
    ///
    /// # Safety
    /// The caller has entered the cache.
    pub unsafe fn limit<O: Os>(&self, supply: &Supply<O>, bins: &Bins, most: usize) {
        for class in 1..=CLASSES {
            // SAFETY: the caller has entered the cache (fn contract), so stacks and words are its alone.
            unsafe {
                let recalled = self.recall_ration(class);
                bins.put(supply, class, recalled, Age::Fresh, Wait::Yes);
                self.with_stack(class, |stack, _| {
                    if class <= most {
                        if stack.is_closed() {
                            *stack = Stack::first(self.first_stacks(), class);
                        }
                        return;
                    }
                    let count = stack.len();
                    bins.put(supply, class, stack.oldest(count), Age::Fresh, Wait::Yes);
                    stack.drop_oldest(count);
                    stack.shrink(supply.os, supply.metadata, self.first_stacks(), class, false);
                    *stack = Stack::closed(self.first_stacks(), class);
                });
            }
        }
    }

    /// The largest class whose slots are kept; 0 for none.
    ///
    /// # Safety
    /// The caller has entered the cache.
    pub unsafe fn limit_now(&self) -> usize {
        let open = |class: &usize| {
            // SAFETY: the caller has entered the cache (fn contract), so stacks and words are its alone.
            unsafe { self.with_stack(*class, |stack, _| !stack.is_closed()) }
        };
        (1..=CLASSES).rev().find(open).unwrap_or(0)
    }

    /// Forgets every slot, and the memory of stacks that have grown.
    ///
    /// # Safety
    /// The caller has the cache to itself. Its contents need not be consistent.
    pub unsafe fn forget_slots(&self) {
        for class in 1..=CLASSES {
            // SAFETY: the caller has the cache to itself (fn contract).
            unsafe {
                self.recall_ration(class);
                self.with_stack(class, |stack, demand| {
                    let memory = self.first_stacks();
                    *stack = if stack.is_closed() { Stack::closed(memory, class) } else { Stack::first(memory, class) };
                    demand.marked();
                });
            }
        }
    }

    /// Makes the cache look like one whose drain was never completed, or worse.
    ///
    /// # Safety
    /// As for [`Cache::forget_slots`].
    #[cfg(test)]
    pub unsafe fn tear(&self) {
        for class in 1..=CLASSES {
            // SAFETY: the caller has the cache to itself (contract of `forget_slots`).
            unsafe {
                self.with_stack(class, |stack, _| {
                    stack.top = crate::base::corrupt::torn();
                    stack.low = core::ptr::null_mut();
                });
            }
        }
    }

    /// Bytes in the cache.
    ///
    /// # Safety
    /// The caller has entered or seized the cache.
    pub unsafe fn bytes(&self) -> usize {
        // SAFETY: the caller has entered or seized the cache (fn contract), so stacks and words are its alone.
        (1..=CLASSES)
            .map(|class| unsafe {
                let slots = self.with_stack(class, |stack, _| stack.len()) + self.ration_len(class);
                slots * CLASS[class].size as usize
            })
            .sum()
    }
}
