//! A futex lock around a value. Unit tests check that locks are taken in the order of their ranks.
//!
//! Three states as in Drepper, "Futexes Are Tricky" (2011): free, held, held with sleepers. The
//! value can be reached only through a [`Guard`]. Locks are taken in the order of [`Rank`].

use super::holds::Held;
use super::rank::KeptRank;
pub use super::rank::Rank;
use super::sync::{AtomicU32, Ordering, UnsafeCell, initialiser, spin_hint};
use crate::os::Os;
use core::ops::{Deref, DerefMut};

/// Whether a call may wait for a lock. In a signal handler it may not: the interrupted thread itself may hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It may wait.
    Yes,
    /// It fails if the lock is held.
    No,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
/// Tries before sleeping, ever more pauses apart up to [`PAUSES_MOST`], so that waiting threads leave the lock's line to its
/// holder: a critical section here is shorter than a futex call (about 1 µs). None under loom: they would only add schedules.
const TRIES: u32 = if cfg!(loom) { 0 } else { 24 };
const PAUSES_MOST: u32 = 32;

/// A value behind a lock.
pub struct Lock<T> {
    /// Written by the thread that takes or releases the lock. Acquire on taking pairs with the release
    /// on releasing (loom: `lock_hands_over_the_value`).
    state: AtomicU32,
    rank: KeptRank,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only while `state` says held, by one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Offset of the value in a lock.
    pub const VALUE: usize = core::mem::offset_of!(Self, value);

    initialiser! {
        /// A free lock around `value`.
        pub fn new(rank: Rank, value: T) -> Self {
            Self { state: AtomicU32::new(FREE), rank: rank.kept(), value: UnsafeCell::new(value) }
        }
    }

    /// Takes the lock, sleeping if need be.
    #[inline]
    pub fn lock<'a, O: Os>(&'a self, os: &'a O) -> Guard<'a, T, O> {
        order::taking(self.rank);
        self.take(os);
        Guard::new(self, os)
    }

    #[inline]
    fn take<O: Os>(&self, os: &O) {
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow(os);
        }
    }

    /// Takes the lock if it is free. It never waits, so a signal handler may call it even if the interrupted thread holds
    /// locks.
    #[inline]
    pub fn try_lock<'a, O: Os>(&'a self, os: &'a O) -> Option<Guard<'a, T, O>> {
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
        order::taking_unordered(self.rank);
        Some(Guard::new(self, os))
    }

    /// Takes the lock. With [`Wait::No`] only if it is free.
    #[inline]
    pub fn lock_if<'a, O: Os>(&'a self, os: &'a O, wait: Wait) -> Option<Guard<'a, T, O>> {
        match wait {
            Wait::Yes => Some(self.lock(os)),
            Wait::No => self.try_lock(os),
        }
    }

    #[cold]
    fn lock_slow<O: Os>(&self, os: &O) {
        let mut pauses = 1;
        for _ in 0..TRIES {
            (0..pauses).for_each(|_| spin_hint());
            if self.state.load(Ordering::Relaxed) == FREE
                && self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            pauses = (pauses * 2).min(PAUSES_MOST);
        }
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            #[cfg(not(loom))]
            os.wait(&self.state, CONTENDED, None);
            #[cfg(loom)]
            {
                let _ = os;
                spin_hint();
            }
        }
    }

    /// Takes the lock without a guard, like a thread that never finishes a change; [`Lock::thaw`] releases it.
    #[cfg(test)]
    pub fn freeze<O: Os>(&self, os: &O) {
        self.take(os);
        order::taking_unordered(self.rank);
    }

    /// Releases a lock that [`Lock::freeze`] took.
    ///
    /// # Safety
    /// The calling thread holds the lock by `freeze`.
    #[cfg(test)]
    pub unsafe fn thaw<O: Os>(&self, os: &O) {
        order::giving(self.rank);
        self.unlock(os);
    }

    /// Calls `work` with the value, whether or not the lock is held.
    ///
    /// # Safety
    /// No other thread uses the value meanwhile: the caller holds the lock, or is its process's only thread.
    pub unsafe fn frozen_value<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: no other thread uses the value (fn contract), and `freeze` and the process's only thread hold no guard.
        self.value.with_mut(|value| work(unsafe { &mut *value }))
    }

    /// Whether a thread holds the lock. In the child of a fork that ran no handlers this says that the value may be half
    /// changed.
    pub fn is_held(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }

    /// Makes the lock free. For the child of a fork that ran no handlers, where the thread that held the lock does not
    /// exist.
    ///
    /// # Safety
    /// No thread of this process holds the lock.
    pub unsafe fn reset(&self) {
        self.state.store(FREE, Ordering::Relaxed);
    }

    fn unlock<O: Os>(&self, os: &O) {
        let order = if cfg!(ebb_mutation = "lock_release") { Ordering::Relaxed } else { Ordering::Release };
        if self.state.swap(FREE, order) == CONTENDED {
            #[cfg(not(loom))]
            os.wake(&self.state, 1);
            #[cfg(loom)]
            let _ = os;
        }
    }
}

/// The right to use the value; releases the lock when dropped.
pub struct Guard<'a, T, O: Os> {
    lock: &'a Lock<T>,
    os: &'a O,
    held: Held,
}

impl<'a, T, O: Os> Guard<'a, T, O> {
    /// The guard of a lock that was just taken.
    #[inline(always)]
    fn new(lock: &'a Lock<T>, os: &'a O) -> Self {
        Self { lock, os, held: Held::begin() }
    }
}

impl<T, O: Os> Deref for Guard<'_, T, O> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof that this thread alone holds the lock.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T, O: Os> DerefMut for Guard<'_, T, O> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and it is borrowed mutably.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, O: Os> Drop for Guard<'_, T, O> {
    fn drop(&mut self) {
        self.held.end(self.lock.rank);
        order::giving(self.lock.rank);
        self.lock.unlock(self.os);
    }
}

/// Asserts, in unit tests, that the calling thread holds no lock: none may be held while the kernel takes pages.
#[inline(always)]
pub fn assert_none_held() {
    order::assert_none_held();
}

/// The ranks that this thread holds. Unit tests fail on a wrong order, because two threads could deadlock, even if they
/// did not in this run.
#[cfg(all(test, not(loom)))]
mod order {
    use super::Rank;
    use std::cell::RefCell;

    std::thread_local!(static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) });

    pub fn taking(rank: Rank) {
        HELD.with_borrow_mut(|held| {
            assert!(held.iter().all(|&h| h < rank), "lock order: {rank:?} while holding {held:?}");
            held.push(rank);
        });
    }

    pub fn taking_unordered(rank: Rank) {
        HELD.with_borrow_mut(|held| held.push(rank));
    }

    pub fn assert_none_held() {
        HELD.with_borrow(|held| assert!(held.is_empty(), "the kernel is called with {held:?} held"));
    }

    pub fn giving(rank: Rank) {
        HELD.with_borrow_mut(|held| {
            if let Some(at) = held.iter().rposition(|&h| h == rank) {
                held.remove(at);
            }
        });
    }
}

#[cfg(not(all(test, not(loom))))]
mod order {
    use super::KeptRank;
    #[inline(always)]
    pub fn taking(_: KeptRank) {}
    #[inline(always)]
    pub fn taking_unordered(_: KeptRank) {}
    #[inline(always)]
    pub fn assert_none_held() {}
    #[inline(always)]
    pub fn giving(_: KeptRank) {}
}

/// The lock hands its value over, with everything that was written before.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::{Lock, Rank};
    use crate::os::fake::Fake;
    use loom::sync::Arc;

    #[test]
    fn lock_hands_over_the_value() {
        loom::model(|| {
            let shared = Arc::new((Fake::new(4096), Lock::new(Rank::Bin, 0)));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let shared = shared.clone();
                    loom::thread::spawn(move || *shared.1.lock(&shared.0) += 1)
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(*shared.1.lock(&shared.0), 2);
        });
    }
}
