//! A thread's cache: for each class a stack of free slots, and the words by which the purger can
//! take it over while its owner sleeps.
//!
//! The protocol, one-sided on purpose (the owner pays two plain stores and two loads, the purger
//! pays a system call):
//!
//! - The owner sets `in_use`, looks at `claim`, works, clears `in_use` with release. If it meets a
//!   claim it clears `in_use` at once and goes around its cache; it never waits.
//! - The purger sets `claim` on all caches, makes every thread pass a barrier (membarrier), and
//!   takes those whose `in_use` it then reads as 0, with acquire. Others it leaves alone.
//!
//! Why they cannot both work: the owner's store to `in_use` comes before its load of `claim` in
//! program order, and the compiler keeps it so. If the barrier falls on the owner before the store,
//! the owner's load comes after the barrier and sees the claim; if it falls after the store, the
//! purger sees the store. This is the asymmetric Dekker of Linux's membarrier(2) manual page.
//! A signal handler that interrupts the owner finds `in_use` set and does not touch the cache.
//! Loom: `owner_against_claim`; with real threads: the stress test `claims_under_load`.
//!
//! The low-water mark: at a tick the purger sets each stack's `low` to its top. The owner's pop stops
//! at `low` and takes the slow path, which lowers it by half of what is below. What is still under
//! `low` at the next tick was not touched in between, and goes. So the mark costs no instruction.

use crate::base::sync::{AtomicU8, Ordering, UnsafeCell, compiler_fence};
use crate::size::{CLASS, CLASSES};
use core::ptr::{NonNull, null_mut};

/// A slot in a stack: the address of a free slot of the heap.
pub type Entry = *mut u8;

/// The stack of one class. Grows upwards; `base <= low <= top <= full`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stack {
    /// Behind the newest entry.
    pub top: *mut Entry,
    /// Where a pop takes the slow path.
    pub low: *mut Entry,
    /// Where a push takes the slow path.
    pub full: *mut Entry,
    /// The oldest entry. The word before it is null for ever, so that the newest entry of an empty
    /// stack can be looked at.
    pub base: *mut Entry,
}

impl Stack {
    const NONE: Self = Self {
        top: null_mut(),
        low: null_mut(),
        full: null_mut(),
        base: null_mut(),
    };

    /// Entries on the stack.
    #[inline]
    pub fn len(&self) -> usize {
        (self.top as usize - self.base as usize) / size_of::<Entry>()
    }

    /// Whether the stack has no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.top == self.base
    }

    /// Entries that were not touched since the mark was set.
    #[inline]
    pub fn cold(&self) -> usize {
        (self.low as usize - self.base as usize) / size_of::<Entry>()
    }

    /// Most entries.
    #[inline]
    pub fn capacity(&self) -> usize {
        (self.full as usize - self.base as usize) / size_of::<Entry>()
    }

    /// The oldest `count` entries.
    ///
    /// # Safety
    /// `count <= len()`, and the caller has the cache to itself.
    #[inline]
    pub unsafe fn oldest<'a>(&self, count: usize) -> &'a [Entry] {
        // SAFETY: the entries between base and top are initialised.
        unsafe { core::slice::from_raw_parts(self.base, count) }
    }

    /// Forgets the oldest `count` entries; the others move down.
    ///
    /// # Safety
    /// As for [`Stack::oldest`].
    pub unsafe fn drop_oldest(&mut self, count: usize) {
        let rest = self.len() - count;
        // SAFETY: both ranges lie in the stack.
        unsafe { core::ptr::copy(self.base.wrapping_add(count), self.base, rest) };
        self.top = self.base.wrapping_add(rest);
        let cold = self.cold();
        self.low = self.base.wrapping_add(cold.saturating_sub(count).min(rest));
    }
}

/// What an owner finds when it enters its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The cache is the caller's until it leaves.
    Mine,
    /// The purger has it: go around it.
    Claimed,
    /// A signal handler has interrupted an operation of this very thread.
    Nested,
}

/// See the module.
#[repr(C, align(64))]
pub struct Cache {
    /// Written by the owner alone: 1 during an operation. Its release store of 0 pairs with the
    /// purger's acquire load in [`Cache::seize`].
    in_use: AtomicU8,
    /// Written by the purger alone: 1 while it wants or has the cache. Its release store of 0 pairs
    /// with the owner's acquire load on entering.
    claim: AtomicU8,
    /// The shard whose bins refill this cache. Never changes.
    pub shard: u8,
    stacks: UnsafeCell<[Stack; CLASSES + 1]>,
    /// Slots that the next refill of a class takes: doubles with each refill, so that a thread that
    /// needs little holds little.
    batch: UnsafeCell<[u8; CLASSES + 1]>,
    /// The next cache in the registry. Under the registry's lock.
    pub(super) next: UnsafeCell<*mut Cache>,
}

// SAFETY: the cells are used by the owner while it is in, or by the purger while it has seized the
// cache; the protocol above keeps them apart. `next` belongs to the registry's lock.
unsafe impl Sync for Cache {}
// SAFETY: no field is bound to a thread.
unsafe impl Send for Cache {}

const FIRST_BATCH: u8 = 4;

impl Cache {
    /// A cache that holds nothing and can hold nothing: every operation takes the slow path.
    #[cfg(not(loom))]
    pub const fn none() -> Self {
        Self {
            in_use: AtomicU8::new(0),
            claim: AtomicU8::new(0),
            shard: 0,
            stacks: UnsafeCell::new([Stack::NONE; CLASSES + 1]),
            batch: UnsafeCell::new([FIRST_BATCH; CLASSES + 1]),
            next: UnsafeCell::new(null_mut()),
        }
    }

    /// A cache that holds nothing and can hold nothing: every operation takes the slow path.
    #[cfg(loom)]
    pub fn none() -> Self {
        Self {
            in_use: AtomicU8::new(0),
            claim: AtomicU8::new(0),
            shard: 0,
            stacks: UnsafeCell::new([Stack::NONE; CLASSES + 1]),
            batch: UnsafeCell::new([FIRST_BATCH; CLASSES + 1]),
            next: UnsafeCell::new(null_mut()),
        }
    }

    /// Words of memory that the stacks need: one for each entry and one before each stack.
    pub const STACK_WORDS: usize = {
        let mut words = 0;
        let mut class = 1;
        while class <= CLASSES {
            words += 1 + CLASS[class].cache_slots as usize;
            class += 1;
        }
        words
    };

    /// An empty cache for `shard` with its stacks in `memory`.
    ///
    /// # Safety
    /// `memory` is good for [`Cache::STACK_WORDS`] pointers, and belongs to this cache alone.
    pub unsafe fn new(shard: u8, memory: *mut Entry) -> Self {
        let cache = Self {
            shard,
            ..Self::none()
        };
        let mut at = memory;
        cache.stacks.with_mut(|stacks| {
            for class in 1..=CLASSES {
                // SAFETY: the words add up to STACK_WORDS; the cache is not shared yet.
                unsafe { at.write(null_mut()) };
                let base = at.wrapping_add(1);
                let full = base.wrapping_add(CLASS[class].cache_slots as usize);
                // SAFETY: as above.
                unsafe {
                    (*stacks)[class] = Stack {
                        top: base,
                        low: base,
                        full,
                        base,
                    }
                };
                at = full;
            }
        });
        cache
    }

    /// Takes the newest slot of `class`; `None` if the slow path must be taken, for whatever reason.
    /// This is the fast path of malloc: no lock, no locked instruction.
    #[inline(always)]
    pub fn pop(&self, class: usize) -> Option<NonNull<u8>> {
        if self.is_entered() {
            return None;
        }
        self.in_use.store(1, Ordering::Relaxed);
        owner_barrier();
        let mut slot = None;
        if self.claim.load(Ordering::Acquire) == 0 {
            // SAFETY: entered and not claimed: the stacks are ours.
            slot = self.stacks.with_mut(|stacks| unsafe {
                let stack = (*stacks).as_mut_ptr().add(class);
                let top = (*stack).top;
                if top == (*stack).low {
                    return None;
                }
                let newest = top.wrapping_sub(1);
                (*stack).top = newest;
                // SAFETY: the entries between base and top are slots, none of them at address 0.
                Some(NonNull::new_unchecked(*newest))
            });
        }
        self.in_use.store(0, Ordering::Release);
        slot
    }

    /// Keeps a free slot of `class`. False if the slow path must be taken: the stack is full, the
    /// cache claimed or entered, or the slot is the newest entry already (a double free).
    #[inline(always)]
    pub fn push(&self, class: usize, slot: *mut u8) -> bool {
        if self.is_entered() {
            return false;
        }
        self.in_use.store(1, Ordering::Relaxed);
        owner_barrier();
        let mut kept = false;
        if self.claim.load(Ordering::Acquire) == 0 {
            // SAFETY: entered and not claimed: the stacks are ours.
            kept = self.stacks.with_mut(|stacks| unsafe {
                let stack = (*stacks).as_mut_ptr().add(class);
                let top = (*stack).top;
                if top == (*stack).full || *top.wrapping_sub(1) == slot {
                    return false;
                }
                *top = slot;
                (*stack).top = top.wrapping_add(1);
                true
            });
        }
        self.in_use.store(0, Ordering::Release);
        kept
    }

    /// Whether the owner is inside. Asked by the owner itself, or by what interrupted it.
    #[inline(always)]
    fn is_entered(&self) -> bool {
        #[cfg(loom)]
        return self.in_use.load(Ordering::Relaxed) != 0;
        // SAFETY: only this thread writes the byte, so a plain read races with nothing; unlike an
        // atomic one, the compiler folds it into the comparison. The shared caches of threads that
        // have none are written by others, but every answer is right for them.
        #[cfg(not(loom))]
        return unsafe { self.in_use.as_ptr().read_volatile() != 0 };
    }

    /// Enters for a slow operation. The caller leaves if the answer is [`Entered::Mine`].
    pub fn enter(&self) -> Entered {
        if self.is_entered() {
            return Entered::Nested;
        }
        self.in_use.store(1, Ordering::Relaxed);
        owner_barrier();
        if self.claim.load(Ordering::Acquire) != 0 {
            self.in_use.store(0, Ordering::Release);
            return Entered::Claimed;
        }
        Entered::Mine
    }

    /// Leaves after a slow operation.
    pub fn leave(&self) {
        self.in_use.store(0, Ordering::Release);
    }

    /// Purger: says that it wants the cache. A barrier on all threads must follow.
    pub fn announce(&self) {
        self.claim.store(1, Ordering::Release);
    }

    /// Purger, after the barrier: whether the cache is now its own.
    pub fn seize(&self) -> bool {
        let order = if cfg!(ebb_mutation = "seize_acquire") {
            Ordering::Relaxed
        } else {
            Ordering::Acquire
        };
        self.in_use.load(order) == 0 || cfg!(ebb_mutation = "seize_check")
    }

    /// Purger: gives the cache back, whether it had it or not.
    pub fn unclaim(&self) {
        self.claim.store(0, Ordering::Release);
    }

    /// Calls `work` with the stack of a class and the size of its next refill.
    ///
    /// # Safety
    /// The caller has entered or seized the cache.
    pub unsafe fn with_stack<R>(
        &self,
        class: usize,
        work: impl FnOnce(&mut Stack, &mut u8) -> R,
    ) -> R {
        self.stacks.with_mut(|stacks| {
            self.batch.with_mut(|batch| {
                // SAFETY: the caller has the cache to itself; `class` is a class number.
                unsafe { work(&mut (*stacks)[class], &mut (*batch)[class]) }
            })
        })
    }
}

/// Between the owner's store to `in_use` and its load of `claim`: the compiler must keep the order;
/// the processor is made to by the purger's membarrier, which loom models by fences on both sides.
#[inline(always)]
fn owner_barrier() {
    #[cfg(not(loom))]
    compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    {
        let _ = compiler_fence;
        #[cfg(not(ebb_mutation = "owner_barrier"))]
        crate::base::sync::fence(Ordering::SeqCst);
    }
}
