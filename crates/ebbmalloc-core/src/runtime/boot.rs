//! The boot of the process at its first request.

use super::instance::HEAP;
use super::{figures, publish, settings};
use crate::os::Os;
use core::sync::atomic::{AtomicU8, Ordering};

const UNBOOTED: u8 = 0;
const BOOTING: u8 = 1;
const BOOTED: u8 = 2;

/// Written by the first thread that allocates. Release when booted; a thread that sees BOOTING goes
/// on with the defaults, which are valid at any time.
static STATE: AtomicU8 = AtomicU8::new(UNBOOTED);

/// Once in a process: reads the settings and marks the process. Called in a slow path without a
/// lock, with the thread marked as busy, so that what libc allocates meanwhile is served.
pub(super) fn boot() {
    if STATE
        .compare_exchange(UNBOOTED, BOOTING, Ordering::Relaxed, Ordering::Relaxed)
        .is_err()
    {
        return;
    }
    HEAP.os.mark_alive();
    figures::note_boot();
    settings::read();
    // Now, and not in the purger: a descriptor opened there could be the one that the program expects.
    HEAP.os.scarce();
    publish::open_file();
    STATE.store(BOOTED, Ordering::Release);
}
