//! Draining a cache: slots that its thread has not touched since the last tick are put into the bins, in steps, so
//! that no lock is held for long.

use super::bins::Bins;
use super::cache::Cache;
use crate::base::lock::Wait;
use crate::os::Os;
use crate::size::{CLASS, CLASSES};
use crate::slab::bin::{Age, Supply};

/// If a stack has so many times more cold slots than used ones, it is left over from a burst.
const OVER: usize = 4;

/// A drain of a cache, and how far it has come.
pub struct Drain {
    /// All slots are put back, not only cold ones.
    all: bool,
    /// The class that the drain has come to.
    class: usize,
    /// Slots of this class that were put back.
    count: usize,
    /// Bytes put back into slabs.
    pub put_back_bytes: usize,
    /// Bytes left in the cache.
    pub kept_bytes: usize,
}

impl Drain {
    /// A drain that begins: of the cold slots, or with `all` of all slots.
    pub const fn new(all: bool) -> Self {
        Self { all, class: 1, count: 0, put_back_bytes: 0, kept_bytes: 0 }
    }

    /// The age of the slots that it puts back: cold slots were not used since the last tick.
    const fn age(&self) -> Age {
        if self.all { Age::Fresh } else { Age::Idle }
    }

    /// The same drain, of all slots from now on.
    pub const fn of_all(self) -> Self {
        Self { all: true, ..self }
    }

    /// Whether all slots are put back.
    pub const fn all(&self) -> bool {
        self.all
    }
}

impl Cache {
    /// Puts back the slots that were not touched since the last call, or with `all` all slots, and sets the marks for the
    /// next call. Returns the bytes put back and the bytes kept.
    ///
    /// # Safety
    /// The caller has entered or seized the cache.
    pub unsafe fn drain<O: Os>(&self, supply: &Supply<O>, bins: &Bins, all: bool) -> (usize, usize) {
        let mut drain = Drain::new(all);
        // SAFETY: the caller has entered or seized the cache (fn contract), so stacks and words are its alone.
        while !unsafe { self.drain_some(supply, bins, &mut drain, &mut { usize::MAX }) } {}
        (drain.put_back_bytes, drain.kept_bytes)
    }

    /// Continues a drain. Puts back about `budget` slots at most, and subtracts them from `budget`. True if the drain is
    /// complete.
    ///
    /// # Safety
    /// The caller has entered or seized the cache.
    pub unsafe fn drain_some<O: Os>(
        &self,
        supply: &Supply<O>,
        bins: &Bins,
        drain: &mut Drain,
        budget: &mut usize,
    ) -> bool {
        while drain.class <= CLASSES {
            let class = drain.class;
            let size = CLASS[class].size as usize;
            // SAFETY: the caller has entered or seized the cache (fn contract), so stacks and words are its alone.
            let done = unsafe {
                let recalled = self.recall_ration(class);
                self.with_stack(class, |stack, demand| {
                    for slot in recalled {
                        if stack.top == stack.full {
                            bins.put(supply, class, core::slice::from_ref(slot), Age::Fresh, Wait::Yes);
                        } else {
                            *stack.top = *slot;
                            stack.top = stack.top.wrapping_add(1);
                        }
                    }
                    let cold = if drain.all { stack.len() } else { stack.cold() };
                    let count = cold.min(*budget);
                    if count > 0 {
                        bins.put(supply, class, stack.oldest(count), drain.age(), Wait::Yes);
                        stack.drop_oldest(count);
                        drain.put_back_bytes += count * size;
                        drain.count += count;
                        *budget -= count;
                    }
                    if count < cold {
                        return false;
                    }
                    // If the stack was empty before, it is not known when it was last used.
                    let mut idle = !drain.all && drain.count > 0;
                    if drain.count > 0 {
                        demand.was_cold();
                        // A burst is over. The rest of its slots are scattered, each on another page; a refill
                        // brings slots that are neighbours.
                        let rest = stack.len();
                        if rest > 0 && drain.count >= OVER * rest {
                            bins.put(supply, class, stack.oldest(rest), Age::Fresh, Wait::Yes);
                            stack.drop_oldest(rest);
                            drain.put_back_bytes += rest * size;
                            idle = false;
                            *budget = budget.saturating_sub(rest);
                        }
                    }
                    if stack.is_empty() && !stack.is_closed() {
                        let memory = self.first_stacks();
                        stack.shrink(supply.os, supply.metadata, memory, class, idle);
                    }
                    stack.low = stack.top;
                    demand.marked();
                    drain.kept_bytes += stack.len() * size;
                    true
                })
            };
            if !done {
                return false;
            }
            drain.class += 1;
            drain.count = 0;
        }
        true
    }
}
