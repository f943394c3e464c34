//! Fork: the purger stops before it, so that the forking program is single-threaded again; the heap
//! is frozen across it, so that the child finds every structure whole.

use super::instance::HEAP;
use super::thread::{begin_fork, end_fork, is_inside, is_own, own_cache};
use super::{figures, instance::hooks, profile, publish, purger};
use crate::cache::cache::Cache;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The forking thread's cache, from prepare to parent or child. The heap is frozen in between, so
/// only one thread can be there.
static FORKING: AtomicPtr<Cache> = AtomicPtr::new(core::ptr::null_mut());
/// libc has our handlers.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers the handlers, once. Called after the boot, without a lock: libc may allocate.
pub(super) fn register() {
    if REGISTERED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the handlers are for exactly this call.
    if !unsafe { (hooks().register_fork)(prepare, parent, child) } {
        REGISTERED.store(false, Ordering::Relaxed);
    }
}

/// Whether libc runs our handlers.
pub(super) fn is_registered() -> bool {
    REGISTERED.load(Ordering::Relaxed)
}

unsafe extern "C" fn prepare() {
    // A signal handler that forks in the middle of malloc: its thread may hold any lock, and goes on
    // with it in the child. The heap is left as it is.
    if is_inside() {
        return;
    }
    purger::hold();
    HEAP.os.prepare_membarrier();
    let cache = begin_fork();
    figures::freeze();
    profile::freeze();
    HEAP.freeze(is_own(cache).then_some(cache));
    FORKING.store(core::ptr::from_ref(cache).cast_mut(), Ordering::Relaxed);
}

unsafe extern "C" fn parent() {
    after(false);
}

unsafe extern "C" fn child() {
    // The handlers were registered between this fork's prepare and its child: nothing was frozen.
    if FORKING.load(Ordering::Relaxed).is_null() {
        adopt();
    }
    HEAP.os.mark_alive();
    purger::forget();
    after(true);
    publish::open_file();
}

fn after(in_child: bool) {
    let cache = FORKING.swap(core::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: `prepare` stored the forking thread's cache: a static one or its own.
    let Some(cache) = (unsafe { cache.as_ref() }) else {
        return;
    };
    // SAFETY: `prepare` froze the heap on this thread.
    unsafe {
        HEAP.thaw(in_child, is_own(cache).then_some(cache));
        figures::thaw();
        profile::thaw();
    }
    end_fork(cache);
    if !in_child {
        purger::let_go();
    }
}

/// A child of a fork that ran no handlers, at its first slow operation: the purger and every other
/// thread are gone, in the middle of what they did.
#[cold]
pub(super) fn adopt() {
    HEAP.os.mark_alive();
    purger::forget();
    if !is_inside() {
        // SAFETY: a child of fork has one thread, and it is not inside an operation.
        unsafe {
            HEAP.take_over(own_cache());
            figures::reset();
            profile::adopt();
        }
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
        purger::hold_for_moment();
    } else {
        purger::hold();
    }
    let result = call();
    purger::let_go();
    result
}
