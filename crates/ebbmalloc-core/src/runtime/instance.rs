//! The heap of this process, its boot at the first request, and its end.

use super::Hooks;
use super::{figures, fork, profile, publish, purger, settings, thread};
use crate::heap::Heap;
use crate::os::Os;
use crate::os::linux::Linux;
use core::sync::atomic::{AtomicU8, Ordering};

/// The heap that every face of the allocator in this process uses.
pub(super) static HEAP: Heap<Linux> = Heap::new(Linux::new());

const UNBOOTED: u8 = 0;
const BOOTING: u8 = 1;
const BOOTED: u8 = 2;

/// Written by the first thread that allocates. Release when booted; a thread that sees BOOTING goes
/// on with the defaults, which are valid at any time.
static STATE: AtomicU8 = AtomicU8::new(UNBOOTED);

unsafe extern "Rust" {
    safe fn __ebbmalloc_hooks() -> &'static Hooks;
}

/// What the face supplies.
pub(super) fn hooks() -> &'static Hooks {
    __ebbmalloc_hooks()
}

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

/// At the end of the process (the face's destructor): prints what was asked for, and looks for wrong frees that no flush
/// has met.
pub fn finish() {
    publish::at_exit();
    profile::at_exit();
    // In the child of a fork without handlers locks may be held by threads that it does not have, and a slow path must
    // come first.
    if HEAP.os.is_alive_here()
        && let Some(own) = thread::own_cache()
    {
        HEAP.check_cache(own);
    }
}

/// After a slow operation, without a lock: what needs doing now and then.
#[inline]
pub(super) fn nudge() {
    purger::nudge();
}

/// At the start of a slow operation: a child of a fork that ran no handlers makes the heap its own.
#[inline]
pub(super) fn notice_fork() {
    if !HEAP.os.is_alive_here() {
        fork::adopt();
    }
}

#[cfg(test)]
mod test_hooks {
    use crate::runtime::Hooks;

    /// Unit tests of this crate use no instance; the symbol is there for the linker.
    #[unsafe(no_mangle)]
    extern "Rust" fn __ebbmalloc_hooks() -> &'static Hooks {
        &Hooks {
            register_fork: |_, _, _| false,
            on_thread_exit: |_, _| false,
            environment: |_| None,
            program_settings: |_| None,
            message: |_| false,
            print_statistics: |_| (),
            is_own_object: false,
            errno_location: || core::ptr::null_mut(),
            write_stream: |_, _| false,
            loaded_symbol: |_, _| core::ptr::null(),
        }
    }
}
