//! The purger's thread from outside: its start, and holders that keep it away.

use super::super::instance::HEAP;
use crate::base::life::{Futex, Life, Order, Start};
use crate::os::Os;
use crate::os::linux::Linux;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A program that holds it away again within this time gets it back only so much later: a start costs more than a hold.
const BREATH_MS: u64 = 100;

/// See the module.
pub(crate) struct Thread {
    /// Whether it is there, and what it is to do.
    life: Life,
    /// User and group of the thread that started it, which are its own: libc tells its own threads when
    /// they change, and the purger is none of them.
    ids: AtomicU64,
    /// Set at each tick: the next slow operation compares them with its own.
    look: AtomicBool,
    /// It is not started again before this time, in milliseconds. Relaxed: a start too early or too late harms nothing.
    not_before_ms: AtomicU64,
    /// When it was last kept from running. Relaxed, for the same reason.
    held_ms: AtomicU64,
}

impl Thread {
    pub(super) const fn new() -> Self {
        Self {
            life: Life::new(),
            ids: AtomicU64::new(0),
            look: AtomicBool::new(false),
            not_before_ms: AtomicU64::new(0),
            held_ms: AtomicU64::new(0),
        }
    }

    pub(crate) fn runs(&self) -> bool {
        self.life.is_there()
    }

    /// Whether somebody keeps it away.
    pub(super) fn is_held(&self) -> bool {
        self.life.is_held()
    }

    /// Whether it may be started again after it was held away.
    pub(super) fn has_rested(&self) -> bool {
        let not_before = self.not_before_ms.load(Ordering::Relaxed);
        not_before == 0 || HEAP.os.now_ms() >= not_before
    }

    /// Starts it with `main`, which is given `argument`, after `beginning`. False if the kernel gives no thread.
    ///
    /// # Safety
    /// `main` calls no libc and reads no thread-local of it, and takes `argument`.
    pub(super) unsafe fn start(
        &'static self,
        main: unsafe extern "C" fn(*mut u8),
        argument: *mut u8,
        beginning: impl FnOnce(),
    ) -> bool {
        self.not_before_ms.store(0, Ordering::Relaxed);
        let clone = |word: &'static AtomicU32| {
            beginning();
            self.ids.store(HEAP.os.effective_ids(), Ordering::Relaxed);
            // SAFETY: `main` and `argument` are as the caller vouches. Signals are blocked, and `Life` calls this for one
            // thread at a time.
            unsafe { HEAP.os.spawn(word, main, argument) }
        };
        // Blocked before the start begins: a handler that forked in the middle of it would wait for its own thread.
        let start = HEAP.os.without_signals(|| self.life.start(&HEAP.os, clone));
        start != Start::Refused
    }

    /// Ends its pause.
    pub(super) fn hasten(&self) {
        self.life.hasten(&HEAP.os);
    }

    /// In the thread: what it is to do.
    pub(super) fn order(&self) -> Order {
        self.life.order()
    }

    /// In the thread: sleeps until there is an order, for `timeout_ms` at most; may return early.
    pub(super) fn sleep(&self, timeout_ms: u64) {
        self.life.sleep(&HEAP.os, timeout_ms);
    }

    /// In the thread, after a tick: its rights are to be looked at.
    pub(super) fn ask_for_look(&self) {
        self.look.store(true, Ordering::Relaxed);
    }

    /// If it asks for a look and the program has become another user since it started: another one is started in its
    /// place, with the program's rights of now.
    pub(super) fn end_if_it_kept_rights(&self) {
        if self.look.load(Ordering::Relaxed) && self.look.swap(false, Ordering::Relaxed) {
            self.compare_rights();
        }
    }

    #[cold]
    fn compare_rights(&self) {
        let started_by = self.ids.load(Ordering::Relaxed);
        if HEAP.os.effective_ids() != started_by && !HEAP.os.is_borrower() {
            self.hold();
            self.let_go();
        }
    }

    /// Stops it and waits for its end; it cannot be started until [`Thread::let_go`]. Its work is taken
    /// up again then, at the next slow operation.
    pub(crate) fn hold(&self) {
        self.life.begin_hold(&HEAP.os);
        self.life.wait_for_end(&HEAP.os, None);
        HEAP.os.see_purger_off();
    }

    /// [`Thread::hold`] in a signal handler that interrupted a request: the thread may be waiting for what that holds,
    /// and is waited for no longer than it usually takes. It ends as soon as it can.
    pub(crate) fn hold_for_moment(&self) {
        const TURNS: u32 = 5;
        self.life.begin_hold(&HEAP.os);
        self.life.wait_for_end(&HEAP.os, Some(TURNS));
    }

    /// Ends it as soon as it can, for good.
    pub(crate) fn end(&self) {
        self.life.begin_hold(&HEAP.os);
    }

    /// Undoes [`Thread::hold`].
    pub(crate) fn let_go(&self) {
        let now = HEAP.os.now_ms();
        if self.held_ms.swap(now, Ordering::Relaxed) + BREATH_MS > now {
            self.not_before_ms.store(now + BREATH_MS, Ordering::Relaxed);
        }
        self.life.let_go();
    }

    /// In a child: there is no such thread here, whatever the parent had.
    pub(super) fn forget(&self) {
        HEAP.os.forget_purger();
        self.life.forget();
    }
}

impl Futex for Linux {
    fn sleep(&self, word: &AtomicU32, expected: u32, timeout_ms: Option<u64>) {
        self.wait_shared(word, expected, timeout_ms);
    }

    fn wake(&self, word: &AtomicU32) {
        self.wake_shared(word);
    }
}
