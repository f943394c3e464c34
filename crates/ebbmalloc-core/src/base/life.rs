//! The life of the purger's thread: there is at most one, and holders can keep it away.
//!
//! Two words say everything. `thread` is not 0 from the moment a start begins until the kernel has seen the
//! thread's end, and the kernel clears it by itself (CLONE_CHILD_CLEARTID), so a thread that a filter kills is
//! no case of its own. `orders` counts the holders, who want no thread, and says whether the thread's pause is over.
//!
//! A start writes `thread` and then reads `orders`; a holder writes `orders` and then reads `thread`, with a
//! full fence in between on both sides. So either the start sees the holder and gives up, or the holder sees the start and
//! waits for the thread, which ends when it first reads its orders.
//!
//! Loom (`life::loom_tests`): one holder and two, against a thread that runs and against a start.

use super::sync::{AtomicU32, Ordering, fence, initialiser};

/// In `thread` while a thread is being started, and has no id yet.
const STARTING: u32 = u32::MAX;
/// In `orders`: the thread's pause is over.
const HASTEN: u32 = 1;
/// In `orders`: one holder.
const HOLDER: u32 = 2;

/// Sleeping until a word changes. The kernel wakes sleepers on a word that it clears itself as [`Futex::wake`]
/// does, but only one of them.
pub trait Futex {
    /// Sleeps while `word` holds `expected`, for `timeout_ms` at most; may return early.
    fn sleep(&self, word: &AtomicU32, expected: u32, timeout_ms: Option<u64>);
    /// Wakes all that sleep on `word`.
    fn wake(&self, word: &AtomicU32);
}

/// What the thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// What it does.
    Nothing,
    /// Its pause is over.
    Hasten,
    /// It ends.
    End,
}

/// What became of [`Life::start`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The thread runs.
    Running,
    /// There is one already, or one is held away.
    Needless,
    /// The kernel gives none.
    Refused,
}

/// See the module.
pub struct Life {
    /// Id of the thread, or [`STARTING`], or 0. Written by the thread that starts it, and by the kernel. Acquire of a 0
    /// pairs with the kernel's clearing, and with the release in `leave`.
    thread: AtomicU32,
    /// [`HASTEN`] and a number of [`HOLDER`]s.
    orders: AtomicU32,
}

impl Life {
    initialiser! {
        /// No thread, and no holder that keeps one from starting.
        pub fn new() -> Self {
            Self { thread: AtomicU32::new(0), orders: AtomicU32::new(0) }
        }
    }

    /// Whether there is a thread, or a start under way.
    pub fn is_there(&self) -> bool {
        self.thread.load(Ordering::Acquire) != 0
    }

    /// Whether somebody keeps the thread away.
    pub fn is_held(&self) -> bool {
        // Acquire pairs with the release in `let_go`: what a holder did is before the next thread's life.
        self.orders.load(Ordering::Acquire) >= HOLDER
    }

    /// Starts the thread by `clone`, which lets the kernel write its id into the word and clear that at its end. The
    /// caller has signals blocked: a handler that came in here and held would wait for its own thread.
    pub fn start<'a>(&'a self, futex: &impl Futex, clone: impl FnOnce(&'a AtomicU32) -> bool) -> Start {
        if self.thread.compare_exchange(0, STARTING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Start::Needless;
        }
        // Partner: the fence in `begin_hold`.
        if !cfg!(ebb_mutation = "life_fence") {
            fence(Ordering::SeqCst);
        }
        if self.is_held() {
            self.leave(futex);
            return Start::Needless;
        }
        self.orders.fetch_and(!HASTEN, Ordering::Relaxed);
        if clone(&self.thread) {
            return Start::Running;
        }
        self.leave(futex);
        Start::Refused
    }

    /// A start that came to nothing.
    fn leave(&self, futex: &impl Futex) {
        self.thread.store(0, Ordering::Release);
        futex.wake(&self.thread);
    }

    /// From now on no thread is started, and the one there is ends.
    pub fn begin_hold(&self, futex: &impl Futex) {
        // Release pairs with the acquire in `order`.
        self.orders.fetch_add(HOLDER, Ordering::Release);
        // Partner: the fence in `start`.
        fence(Ordering::SeqCst);
        if self.thread.load(Ordering::Relaxed) != 0 {
            futex.wake(&self.orders);
        }
    }

    /// After [`Life::begin_hold`]: waits until there is no thread, in `turns` sleeps of a millisecond at most, or for
    /// ever. False if there still is one.
    pub fn wait_for_end(&self, futex: &impl Futex, turns: Option<u32>) -> bool {
        let mut slept = 0;
        loop {
            let thread = self.thread.load(Ordering::Acquire);
            if thread == 0 {
                // The kernel wakes one sleeper, and that may be us: the others are ours to wake.
                if slept > 0 && !cfg!(ebb_mutation = "life_wake") {
                    futex.wake(&self.thread);
                }
                return true;
            }
            if turns.is_some_and(|turns| slept >= turns) {
                return false;
            }
            futex.sleep(&self.thread, thread, turns.map(|_| 1));
            slept += 1;
        }
    }

    /// Undoes [`Life::begin_hold`].
    pub fn let_go(&self) {
        let mut orders = self.orders.load(Ordering::Relaxed);
        // Not below 0: in a child `forget` may have come first.
        while let Err(now) = self.orders.compare_exchange(
            orders,
            orders.saturating_sub(HOLDER) | orders & HASTEN,
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            orders = now;
        }
    }

    /// Ends the thread's pause. Nothing happens if it has another order.
    pub fn hasten(&self, futex: &impl Futex) {
        if self.orders.compare_exchange(0, HASTEN, Ordering::Release, Ordering::Relaxed).is_ok() {
            futex.wake(&self.orders);
        }
    }

    /// In the thread: its order, which is carried out by that, unless it is to end.
    pub fn order(&self) -> Order {
        match self.orders.load(Ordering::Acquire) {
            0 => Order::Nothing,
            HASTEN => {
                // A holder may have come meanwhile, and stays.
                self.orders.fetch_and(!HASTEN, Ordering::Relaxed);
                Order::Hasten
            }
            _ => Order::End,
        }
    }

    /// In the thread: sleeps until there is an order, for `timeout_ms` at most; may return early.
    pub fn sleep(&self, futex: &impl Futex, timeout_ms: u64) {
        futex.sleep(&self.orders, 0, Some(timeout_ms));
    }

    /// In a child of fork: there is no thread here, and no holder, whatever the parent had.
    pub fn forget(&self) {
        self.orders.store(0, Ordering::Relaxed);
        self.thread.store(0, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
