//! Memory pressure while the purger sleeps. As long as much is free, the purger wakes ten times per second and reads how long
//! tasks have waited for memory; if that is a tenth of the time, everything free is returned at once. It costs nothing
//! while little is free.

use super::super::instance::HEAP;
use crate::os::Os;
use crate::os::linux::Stalls;

/// So much free memory is worth ten looks per second: a look takes some 10 microseconds.
const WORTH_BYTES: usize = 8 << 20;
/// Time between two looks.
const LOOK_MS: u64 = 100;
/// Pressure: tasks waited for one part in so many of the time between two looks. systemd asks for the same by default.
const SHARE: u64 = 10;

/// What the purger's thread knows of memory pressure.
pub(super) struct Watch {
    /// The thread has descriptors of its own, in which it may open files.
    own_descriptors: bool,
    tried: bool,
    file: Option<Stalls>,
    /// Bytes that were free after the last tick.
    free_bytes: usize,
    /// The last look: when, and what was read.
    look: Option<(u64, u64)>,
}

impl Watch {
    /// Of a thread that begins.
    pub(super) const fn new() -> Self {
        Self { own_descriptors: false, tried: false, file: None, free_bytes: 0, look: None }
    }

    /// Whether files may be opened.
    pub(super) fn may_open(&mut self) -> bool {
        // A single-threaded program may rely on the numbers of its descriptors.
        self.own_descriptors = self.own_descriptors || HEAP.os.leave_descriptors();
        self.own_descriptors
    }

    pub(super) fn ticked(&mut self) {
        self.free_bytes = HEAP.free_bytes();
    }

    /// How much of `wait_ms` to sleep before the next look.
    pub(super) fn sleep_ms(&mut self, wait_ms: u64) -> u64 {
        if self.free_bytes + HEAP.freed_bytes() < WORTH_BYTES {
            self.look = None;
            return wait_ms;
        }
        if !self.tried {
            self.tried = true;
            self.file = if self.may_open() { HEAP.os.open_stalls() } else { None };
        }
        if self.file.is_some() { wait_ms.min(LOOK_MS) } else { wait_ms }
    }

    /// Looks, if it is time; whether there was pressure since the last look.
    pub(super) fn is_pressed(&mut self) -> bool {
        let now_ms = HEAP.os.now_ms();
        // A wake-up without a reason comes early.
        if self.look.is_some_and(|(then_ms, _)| now_ms < then_ms + LOOK_MS / 2) {
            return false;
        }
        let Some(total_us) = self.file.as_ref().and_then(Stalls::total_us) else {
            return false;
        };
        let before = self.look.replace((now_ms, total_us));
        before.is_some_and(|(then_ms, then_us)| {
            let elapsed_us = now_ms.saturating_sub(then_ms) * 1000;
            total_us.saturating_sub(then_us) * SHARE > elapsed_us && self.free_bytes + HEAP.freed_bytes() >= WORTH_BYTES
        })
    }
}
