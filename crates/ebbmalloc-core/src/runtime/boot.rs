//! The boot of the process at its first request.

use super::instance::HEAP;
use super::{publish, settings};
use crate::os::Os;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The boot has begun. A second thread does not wait for its end: it goes on with the default settings, which are valid
/// at any time. Relaxed: nothing is read because of it.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// When the boot began, by the monotonic clock; 0 before. Written once, relaxed.
static BOOT_MS: AtomicU64 = AtomicU64::new(0);

/// When the process booted, by the monotonic clock in milliseconds; 0 before.
pub fn boot_ms() -> u64 {
    BOOT_MS.load(Ordering::Relaxed)
}

/// Once in a process: reads the settings and marks the process. Called in a slow path without a
/// lock, with the thread marked as busy, so that what libc allocates meanwhile is served.
pub(super) fn boot() {
    if BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    HEAP.os.mark_alive();
    BOOT_MS.store(HEAP.os.now_ms(), Ordering::Relaxed);
    settings::read();
    // Not in the purger: a descriptor opened there could be the one that the program expects.
    HEAP.os.prepare_scarce();
    publish::open_file();
}
