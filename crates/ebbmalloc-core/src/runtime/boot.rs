//! The boot of the process at its first request.

use super::instance::HEAP;
use super::{figures, publish, settings};
use core::sync::atomic::{AtomicBool, Ordering};

/// The boot has begun. A second thread does not wait for its end: it goes on with the default settings, which are valid
/// at any time. Relaxed: nothing is read because of it.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Once in a process: reads the settings and marks the process. Called in a slow path without a
/// lock, with the thread marked as busy, so that what libc allocates meanwhile is served.
pub(super) fn boot() {
    if BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    HEAP.os.mark_alive();
    figures::note_boot();
    settings::read();
    // Not in the purger: a descriptor opened there could be the one that the program expects.
    HEAP.os.prepare_scarce();
    publish::open_file();
}
