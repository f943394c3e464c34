//! The gate that a fork closes: while it is closed, only the forking thread is inside the heap, so that the process
//! is copied while nothing in the heap is half changed. No lock is held for that: libc takes its own locks between our
//! handler and the copy, and a thread that has one of them may come for memory first.
//!
//! So no thread waits at the gate for long. A thread that has waited for [`PATIENCE_MS`] is served outside
//! ([`super::Access::Outside`]), and so is everyone else, after a moment, while the gate stays closed. Nor does the fork wait for long: for
//! a thread that is inside and does not leave, or for another fork. It goes on then, and the child finds out whether
//! the heap is whole ([`Heap::take_over`](super::Heap::take_over)).
//!
//! A thread inside its cache is kept out by a claim on the cache (`cache::registry::fork`). All others are guests, who are
//! counted: a guest counts itself and then looks at the gate, the fork closes the gate and then looks at the count, with
//! a full fence in between on both sides. Loom: `guest_against_fork`.

use crate::base::sync::{AtomicU32, AtomicUsize, Ordering, fence, initialiser};
use crate::os::Os;

/// How long a thread waits at the gate, in milliseconds: most forks take less than one.
pub const PATIENCE_MS: u64 = 10;
/// How long everyone waits who comes after a thread that has waited for so long, and that thread with its next request.
const LATE_MS: u64 = 1;
/// How long a fork waits for another one, and for threads that are inside.
const FORK_PATIENCE_MS: u64 = 100;

const OPEN: u32 = 0;
const CLOSED: u32 = 1;
/// Threads sleep on the word.
const AWAITED: u32 = 2;
/// A thread has waited long enough.
const LATE: u32 = 4;

/// See the module.
pub struct Gate {
    /// [`OPEN`], or [`CLOSED`] with flags. Acquire of `OPEN` pairs with the release of opening.
    state: AtomicU32,
    /// Who closed it: a number of its thread, 0 if it is open. Relaxed: only that thread looks for its own number.
    owner: AtomicUsize,
    /// Forks of the owner, one within the other. Its own; relaxed.
    depth: AtomicU32,
    /// Threads inside without a cache. Release on leaving pairs with the fork's acquire.
    guests: AtomicU32,
}

impl Gate {
    initialiser! {
        /// Open.
        pub(super) fn new() -> Self {
            Self {
                state: AtomicU32::new(OPEN),
                owner: AtomicUsize::new(0),
                depth: AtomicU32::new(0),
                guests: AtomicU32::new(0),
            }
        }
    }

    /// Whether a thread of this number has to wait.
    #[inline]
    pub fn is_closed_to(&self, thread: usize) -> bool {
        self.state.load(Ordering::Acquire) != OPEN && !self.is_owner(thread)
    }

    /// Whether this thread closed it.
    pub fn is_owner(&self, thread: usize) -> bool {
        self.owner.load(Ordering::Relaxed) == thread
    }

    /// Counts the calling thread as a guest once the gate is open to it. False if it is to be served outside.
    pub fn come_in<O: Os>(&self, os: &O, thread: usize) -> bool {
        loop {
            self.guests.fetch_add(1, Ordering::Relaxed);
            // Partner: the fence in `close`.
            if !cfg!(ebb_mutation = "gate_fence") {
                fence(Ordering::SeqCst);
            }
            if !self.is_closed_to(thread) {
                return true;
            }
            self.go_out();
            if !self.wait(os, thread) {
                return false;
            }
        }
    }

    /// The guest leaves.
    pub fn go_out(&self) {
        self.guests.fetch_sub(1, Ordering::Release);
    }

    /// Waits until the gate is open to a thread. False if it is to be served outside.
    #[cold]
    pub fn wait<O: Os>(&self, os: &O, thread: usize) -> bool {
        let until = os.now_ms() + PATIENCE_MS;
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state == OPEN || self.is_owner(thread) {
                return true;
            }
            if state & LATE != 0 {
                // A moment, since mappings are few; the fork may be over just now.
                self.sleep(os, state, LATE_MS);
                return self.state.load(Ordering::Acquire) == OPEN;
            }
            let now = os.now_ms();
            if now < until {
                self.sleep(os, state, until - now);
            } else if self.state.compare_exchange(state, state | LATE, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                // Those who sleep have waited long enough, too.
                self.wake(os);
                return false;
            }
        }
    }

    /// Sleeps while the gate is in `state`, which is not open.
    fn sleep<O: Os>(&self, os: &O, state: u32, timeout_ms: u64) {
        let awaited = state | AWAITED;
        let marked = state == awaited
            || self.state.compare_exchange(state, awaited, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if marked {
            #[cfg(not(loom))]
            os.wait(&self.state, awaited, Some(timeout_ms));
            #[cfg(loom)]
            {
                let _ = timeout_ms;
                os.yield_now();
            }
        }
    }

    fn wake<O: Os>(&self, os: &O) {
        #[cfg(not(loom))]
        os.wake(&self.state, u32::MAX);
        #[cfg(loom)]
        let _ = os;
    }

    /// Fork, before: closes the gate for all but the calling thread. False if another fork has it and does not end, or
    /// is this thread's own.
    pub(super) fn close<O: Os>(&self, os: &O, thread: usize) -> bool {
        if self.is_owner(thread) {
            self.depth.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let until = os.now_ms() + FORK_PATIENCE_MS;
        while self.state.compare_exchange(OPEN, CLOSED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            let now = os.now_ms();
            if now >= until {
                return false;
            }
            let state = self.state.load(Ordering::Relaxed);
            if state != OPEN {
                self.sleep(os, state, until - now);
            }
        }
        self.owner.store(thread, Ordering::Relaxed);
        // Partner: the fence in `come_in`.
        fence(Ordering::SeqCst);
        true
    }

    /// Fork, before: waits until `is_quiet` and no guest is left, for so long. False if
    /// there is no end to it.
    pub(super) fn wait_for_guests<O: Os>(&self, os: &O, is_quiet: impl Fn() -> bool) -> bool {
        let until = os.now_ms() + FORK_PATIENCE_MS;
        loop {
            let empty = self.guests.load(Ordering::Acquire) == 0 || cfg!(ebb_mutation = "fork_pass");
            if empty && is_quiet() {
                return true;
            }
            if os.now_ms() >= until {
                return false;
            }
            os.yield_now();
        }
    }

    /// Fork, after, in the parent. False if this was a fork within another of the same thread, or of a thread that has
    /// not closed the gate: it stays as it is.
    pub(super) fn may_open(&self, thread: usize) -> bool {
        if !self.is_owner(thread) {
            return false;
        }
        if self.depth.load(Ordering::Relaxed) > 0 {
            self.depth.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Fork, after, in the parent: opens the gate that the calling thread has closed.
    pub(super) fn open<O: Os>(&self, os: &O) {
        self.owner.store(0, Ordering::Relaxed);
        if self.state.swap(OPEN, Ordering::Release) & AWAITED != 0 {
            self.wake(os);
        }
    }

    /// In a child: it has one thread, and no fork is under way.
    pub(super) fn reset(&self) {
        self.state.store(OPEN, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
        self.depth.store(0, Ordering::Relaxed);
        self.guests.store(0, Ordering::Relaxed);
    }
}
