//! Fork: the purger stops before it, so that the forking program is single-threaded again; other threads are kept out of
//! the heap across it, so that the child finds every structure whole ([`crate::heap::gate`]).
//!
//! Between the handlers the forking thread uses the heap as ever: libc's own part of a fork and other libraries' handlers may
//! allocate.

use super::hooks::hooks;
use super::instance::HEAP;
use super::profile::backtrace;
use super::purger::purger::PURGER;
use super::state::State;
use super::thread::is_inside;
use super::tls::thread_number;
use super::{mechanisms, publish};
use core::sync::atomic::{AtomicBool, Ordering};
use ebb_stats::mechanism::FORK_HANDLERS;

/// libc has our handlers.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers the handlers, once. Called after the boot, without a lock: libc may allocate.
pub(super) fn register() {
    if REGISTERED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the handlers are for exactly this call.
    let registered = unsafe { (hooks().register_fork)(prepare, parent, child) };
    REGISTERED.store(registered, Ordering::Relaxed);
    mechanisms::note(FORK_HANDLERS, registered);
}

unsafe extern "C" fn prepare() {
    let thread = thread_number();
    let frozen = if is_inside() {
        // A signal handler that forks in the middle of malloc: its thread may hold any lock, and goes on
        // with it in the child.
        PURGER.thread.hold_for_moment();
        HEAP.freeze_from_inside(thread, State::now().cache())
    } else {
        PURGER.thread.hold();
        HEAP.os.prepare_membarrier();
        let state = State::begin_busy();
        let frozen = HEAP.freeze(thread, state.cache());
        state.set();
        frozen
    };
    if !frozen {
        PURGER.thread.let_go();
    }
}

unsafe extern "C" fn parent() {
    let thread = thread_number();
    let thawed = if is_inside() {
        HEAP.thaw(thread)
    } else {
        let state = State::begin_busy();
        let thawed = HEAP.thaw(thread);
        state.set();
        thawed
    };
    if thawed {
        PURGER.thread.let_go();
    }
}

unsafe extern "C" fn child() {
    // A handler that ran before this one may have allocated, and noticed. An emulator (qemu-user 7.2) takes the
    // mark and does not wipe it: there the process's id tells.
    let noticed = HEAP.os.has_fork_mark() && HEAP.os.is_alive_here();
    if !noticed || HEAP.os.owner_id() != HEAP.os.process_id() {
        adopt();
    }
    publish::open_file();
}

/// At the start of a slow operation: a child of a fork that ran no handlers makes the heap its own.
#[inline]
pub(super) fn notice() {
    if !HEAP.os.is_alive_here() {
        adopt();
    }
}

/// In a child, at its first slow operation or when libc tells of the fork: the purger and every other thread are gone,
/// maybe in the middle of what they did.
#[cold]
fn adopt() {
    HEAP.os.mark_alive();
    PURGER.forget();
    // SAFETY: a child of fork has one thread, and `is_inside` says whether that is inside an operation.
    unsafe {
        if is_inside() {
            return HEAP.go_on_inside();
        }
        HEAP.take_over(State::now().cache());
        (hooks().in_child)();
        backtrace::adopt();
    }
}

/// Runs `call` while the process has no purger thread: for system calls that refuse a process with
/// several threads (unshare, setns). Threads that do so at once share that time.
pub fn without_purger<R>(call: impl FnOnce() -> R) -> R {
    // In a child of vfork the thread is its parent's, and no part of this process.
    if HEAP.os.is_borrower() {
        return call();
    }
    if is_inside() {
        PURGER.thread.hold_for_moment();
    } else {
        PURGER.thread.hold();
    }
    let result = call();
    PURGER.thread.let_go();
    result
}
