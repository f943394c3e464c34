//! What a heap knows of how near the limit of its cgroups is. `super::limit` looks.

use crate::arena::GROWTH_STEP;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// How near the limit is. All fields are written by the one thread that holds `looking`, but for
/// `near`, which anybody may read: hints, all relaxed; `looking` itself acquires and releases.
pub struct Pressure {
    pub(super) looking: AtomicBool,
    pub(super) near: AtomicBool,
    /// Tasks wait for memory: the next tick returns all that is free. Written by the purger.
    pub(super) pressed: AtomicBool,
    /// Fresh bytes at the last look.
    pub(super) seen_at: AtomicUsize,
    /// Fresh bytes at which the next look is due, less [`GROWTH_STEP`]: zero at the start.
    due_at: AtomicUsize,
    /// Fresh bytes that may not have been touched at the last look, so that the kernel did not
    /// count them yet.
    pub(super) untouched: AtomicUsize,
    pub(super) next_pass_ms: AtomicU64,
}

impl Pressure {
    /// Far from any limit, and the first look due at the first step of growth.
    pub const fn new() -> Self {
        Self {
            looking: AtomicBool::new(false),
            near: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
            seen_at: AtomicUsize::new(0),
            due_at: AtomicUsize::new(0),
            untouched: AtomicUsize::new(0),
            next_pass_ms: AtomicU64::new(0),
        }
    }

    /// Fresh bytes at which the next look is due.
    pub(super) fn due_at(&self) -> usize {
        self.due_at.load(Ordering::Relaxed).wrapping_add(GROWTH_STEP)
    }

    pub(super) fn set_due_at(&self, fresh: usize) {
        self.due_at.store(fresh.wrapping_sub(GROWTH_STEP), Ordering::Relaxed);
    }

    /// In a child of fork: a thread that was looking is not there.
    pub fn reset(&self) {
        self.looking.store(false, Ordering::Relaxed);
    }
}
