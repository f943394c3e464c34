//! A thread's cache: for each class a stack of free slots, and the words by which the purger can take it over while its owner
//! sleeps.
//!
//! The protocol is asymmetric on purpose: the owner pays for two plain stores and two loads, the purger for a call.
//!
//! - The owner sets `in_use`, reads `claim`, works, and clears `in_use` with release. If `claim` is set, the owner clears
//!   `in_use` at once and does not use its cache for this operation. It never waits.
//! - The purger sets `claim` on some caches and makes every thread pass a barrier (membarrier). Then it reads each
//!   `in_use` with acquire and takes the caches where it is 0. It leaves the others alone.
//!
//! Why both cannot use a cache at once: the owner's store to `in_use` comes before its load of `claim` in program order, and
//! the compiler does not change that. If the barrier falls on the owner before the store, the owner's load comes after the
//! barrier and sees the claim; if it falls after the store, the purger sees the store. This is the asymmetric Dekker of
//! Linux's membarrier(2) manual page. A signal handler that interrupts the owner finds `in_use` set and does not touch the
//! cache. Loom: `owner_against_claim`; with real threads: the stress test `claims_under_load`.
//!
//! The low-water mark: at a tick the purger sets each stack's `low` to its top. The owner's pop stops at `low` and takes the
//! slow path, which lowers it: by a few entries, then by twice as many each time. What is still below `low` at the next tick
//! was not touched in between, and is put back. The mark costs no instruction on the fast path.

use super::stack::{Demand, Entry, Stack, Stacks};
use crate::base::exact::u8_of;
use crate::base::sync::{AtomicU8, Ordering, UnsafeCell, compiler_fence, initialiser};
use crate::size::{CLASSES, QUANTUM, QUICK_MAX, class_of};
use core::ptr::{NonNull, null_mut};

/// What an owner finds when it enters its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The cache is the caller's until it leaves.
    Mine,
    /// The purger has it: the operation must do without the cache.
    Claimed,
    /// A signal handler has interrupted an operation of this very thread.
    Nested,
}

/// What checks of frees know of refills: bytes since [`Cache::was_filled`] said yes, how many, and by class, the first at 0,
/// the lower half of the stack's top at the last look for wrong frees, as a number of entries.
pub(super) struct Refills {
    pub(super) bytes: usize,
    pub(super) count: u32,
    pub(super) tops: [u16; CLASSES],
}

/// See the module.
#[repr(C, align(64))]
pub struct Cache {
    /// 1 while the owner works. Its release store of 0 pairs with the purger's acquire load in [`Cache::seize`].
    in_use: AtomicU8,
    /// [`WANTED`] while the purger wants or has the cache, else 0. Written with release under the registry's lock alone;
    /// pairs with the owner's acquire load on entering.
    claim: AtomicU8,
    /// The shard whose bins refill this cache. Written by the owner alone, in its cache; relaxed.
    pub(super) shard: core::sync::atomic::AtomicU8,
    /// Class of a request of up to 16 bytes, 32, ... [`QUICK_MAX`]. A copy for each cache saves the fast path the address of
    /// a table. In a rationed cache they lead to the rations. Written by the owner alone.
    pub(super) quick: UnsafeCell<[u8; QUICK_MAX / QUANTUM + 1]>,
    pub(super) stacks: UnsafeCell<Stacks>,
    demand: UnsafeCell<[Demand; CLASSES + 1]>,
    /// As `stacks`.
    pub(super) refills: UnsafeCell<Refills>,
    /// The explicit arena that refills this cache, as [`Cache::home`] says. Written by the owner alone, relaxed.
    pub(super) home: core::sync::atomic::AtomicU16,
    /// A mask for the class of a pop that must not use a ration: all ones; in a rationed cache zero, so that the pop uses
    /// class 0, whose stack is always empty. Written by the owner alone.
    pub(super) unrationed: UnsafeCell<usize>,
    /// Memory of the rations (`ration.rs`); null but in a rationed cache. Under the cache's protocol.
    pub(super) rations: UnsafeCell<*mut u8>,
    /// The program made this cache, and any thread may name it; it is not the cache of one thread. Never changes.
    pub(super) explicit: bool,
    /// The next cache in the registry. Under the registry's lock.
    pub(super) next: UnsafeCell<*mut Cache>,
}

// SAFETY: the cells are used by the owner while it is in, or by the purger while it has seized the
// cache; the protocol above keeps them apart. `next` belongs to the registry's lock.
unsafe impl Sync for Cache {}
// SAFETY: no field is bound to a thread.
unsafe impl Send for Cache {}

const WANTED: u8 = 1;

pub(super) const QUICK_CLASSES: [u8; QUICK_MAX / QUANTUM + 1] = {
    let mut classes = [0; QUICK_MAX / QUANTUM + 1];
    let mut index = 0;
    while index < classes.len() {
        classes[index] = u8_of(class_of(index * QUANTUM));
        index += 1;
    }
    classes
};

/// Enters for a fast operation. If the owner is inside already, or the purger wants the cache, it does `otherwise`. Like
/// [`Cache::enter`], but written for speed: five instructions.
#[cfg(all(target_arch = "x86_64", not(loom)))]
macro_rules! enter_or {
    ($cache:expr, $otherwise:expr) => {
        // SAFETY: reads and writes the first two bytes of the cache, `in_use` and `claim`, as `enter`
        // does: a store, and a later load that the compiler cannot move before it. On this
        // architecture every load acquires. The compiler folds no atomic load into a comparison.
        unsafe {
            core::arch::asm!(
                "cmp byte ptr [{cache}], 0",
                "jne {inside}",
                "mov byte ptr [{cache}], 1",
                "cmp byte ptr [{cache} + 1], 0",
                "jne {claimed}",
                cache = in(reg) $cache,
                inside = label { $otherwise },
                claimed = label {
                    $cache.leave();
                    $otherwise
                },
                options(nostack),
            )
        }
    };
}
#[cfg(not(all(target_arch = "x86_64", not(loom))))]
macro_rules! enter_or {
    ($cache:expr, $otherwise:expr) => {
        match $cache.enter() {
            Entered::Mine => {}
            _ => $otherwise,
        }
    };
}

impl Cache {
    /// Offset of the next cache's address in a cache.
    pub const NEXT: usize = core::mem::offset_of!(Self, next);
    /// Offset of the stacks in a cache.
    pub const STACKS: usize = core::mem::offset_of!(Self, stacks);

    initialiser! {
        /// A cache that holds nothing and can hold nothing: every operation takes the slow path.
        pub fn none() -> Self {
            Self {
                in_use: AtomicU8::new(0),
                claim: AtomicU8::new(0),
                shard: core::sync::atomic::AtomicU8::new(0),
                home: core::sync::atomic::AtomicU16::new(0),
                explicit: false,
                quick: UnsafeCell::new(QUICK_CLASSES),
                unrationed: UnsafeCell::new(usize::MAX),
                rations: UnsafeCell::new(null_mut()),
                stacks: UnsafeCell::new(Stacks::NONE),
                demand: UnsafeCell::new([Demand::FIRST; CLASSES + 1]),
                refills: UnsafeCell::new(Refills { bytes: 0, count: 0, tops: [0; CLASSES] }),
                next: UnsafeCell::new(null_mut()),
            }
        }
    }

    /// Like [`Cache::none`], but it counts as entered: many threads use it at once, and it is never written to.
    #[cfg(not(loom))]
    pub const fn closed() -> Self {
        Self { in_use: AtomicU8::new(1), ..Self::none() }
    }

    /// Bytes of a cache with the first memory of its stacks, which lies after it.
    pub const BYTES: usize = size_of::<Self>() + Stack::ALL_FIRST_WORDS * size_of::<Entry>();

    /// Makes an empty cache for `shard` at `place`; `explicit` if it is no thread's own.
    ///
    /// # Safety
    /// `place` is good for [`Cache::BYTES`] bytes, aligned to a cache, and the caller's alone.
    pub unsafe fn make(place: NonNull<Self>, shard: u8, explicit: bool) {
        // SAFETY: the place is long enough, aligned and the caller's alone (fn contract).
        unsafe {
            place.write(Self { shard: core::sync::atomic::AtomicU8::new(shard), explicit, ..Self::none() });
            let cache = place.as_ref();
            cache.stacks.with_mut(|stacks| {
                for class in 1..=CLASSES {
                    (*stacks).set(class, Stack::first(cache.first_stacks(), class));
                }
            });
        }
    }

    /// The shard whose bins refill this cache, unless it is on an explicit arena.
    pub fn shard(&self) -> u8 {
        self.shard.load(Ordering::Relaxed)
    }

    /// The first memory of the stacks, of a cache that [`Cache::make`] made.
    pub fn first_stacks(&self) -> *mut Entry {
        (&raw const *self).wrapping_add(1).cast::<Entry>().cast_mut()
    }

    /// Takes the newest slot of the class for `size` bytes, at most [`QUICK_MAX`]; `None` if the slow
    /// path must be taken. This is the fast path of malloc: no lock, no locked instruction.
    #[inline(always)]
    pub fn pop_quick(&self, size: usize) -> Option<NonNull<u8>> {
        self.pop(self.quick_class(size))
    }

    /// The class for `size` bytes, at most [`QUICK_MAX`].
    #[inline(always)]
    pub fn quick_class(&self, size: usize) -> usize {
        let index = size.wrapping_add(QUANTUM - 1) / QUANTUM;
        // SAFETY: only the calling thread writes the table.
        let class = self.quick.with(|quick| unsafe { (*quick)[index] });
        class as usize
    }

    /// Takes the newest slot of `class`; `None` as for [`Cache::pop_quick`].
    #[inline(always)]
    pub fn pop(&self, class: usize) -> Option<NonNull<u8>> {
        enter_or!(self, return None);
        // SAFETY: entered and not claimed: the stacks are ours; the callers pass a class number.
        let slot = self.stacks.with_mut(|stacks| unsafe {
            let top = *(*stacks).top.get_unchecked(class);
            if top == *(*stacks).low.get_unchecked(class) {
                return None;
            }
            let newest = top.wrapping_sub(1);
            *(*stacks).top.get_unchecked_mut(class) = newest;
            // SAFETY: the entries between base and top are slots, none of them at address 0.
            Some(NonNull::new_unchecked(*newest))
        });
        self.leave();
        slot
    }

    /// Keeps a free slot of `class`. False if the slow path must be taken: the stack is full, the
    /// cache claimed or entered, or the slot is the newest entry already (a double free).
    #[inline(always)]
    pub fn push(&self, class: usize, slot: *mut u8) -> bool {
        enter_or!(self, return false);
        // SAFETY: entered and not claimed: the stacks are ours; the callers pass a class number.
        let kept = self.stacks.with_mut(|stacks| unsafe {
            let top = *(*stacks).top.get_unchecked(class);
            if top == *(*stacks).full.get_unchecked(class) || *top.wrapping_sub(1) == slot {
                return false;
            }
            *top = slot;
            *(*stacks).top.get_unchecked_mut(class) = top.wrapping_add(1);
            true
        });
        self.leave();
        kept
    }

    /// Whether the owner is inside. Called by the owner itself, or by a signal handler that interrupted it.
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

    /// Enters for an operation. The caller leaves if the answer is [`Entered::Mine`].
    pub fn enter(&self) -> Entered {
        if self.is_entered() {
            return Entered::Nested;
        }
        self.in_use.store(1, Ordering::Relaxed);
        owner_barrier();
        if self.claim.load(Ordering::Acquire) & WANTED != 0 {
            self.in_use.store(0, Ordering::Release);
            return Entered::Claimed;
        }
        Entered::Mine
    }

    /// Leaves after an operation.
    #[inline(always)]
    pub fn leave(&self) {
        self.in_use.store(0, Ordering::Release);
    }

    /// Purger: says that it wants the cache. A barrier on all threads must follow.
    pub fn announce(&self) {
        self.claim.store(WANTED, Ordering::Release);
    }

    /// Purger, after the barrier: whether the cache is now its own.
    pub fn seize(&self) -> bool {
        let order = if cfg!(ebb_mutation = "seize_acquire") { Ordering::Relaxed } else { Ordering::Acquire };
        self.in_use.load(order) == 0 || cfg!(ebb_mutation = "seize_check")
    }

    /// Purger: ends the claim, whether it got the cache or not.
    pub fn unclaim(&self) {
        self.claim.store(0, Ordering::Release);
    }

    /// Calls `work` with the stack of a class and its [`Demand`].
    ///
    /// # Safety
    /// The caller has entered or seized the cache.
    pub unsafe fn with_stack<R>(&self, class: usize, work: impl FnOnce(&mut Stack, &mut Demand) -> R) -> R {
        self.stacks.with_mut(|stacks| {
            self.demand.with_mut(|demand| {
                // SAFETY: the caller has the cache to itself; `class` is a class number.
                unsafe {
                    let mut stack = (*stacks).get(class);
                    let result = work(&mut stack, &mut (*demand)[class]);
                    (*stacks).set(class, stack);
                    result
                }
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
