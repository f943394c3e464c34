//! Entering a sandbox: the purger ends before it and does not come back; slow paths do its work.
//!
//! A seccomp filter, the promise of no new privileges and the like are a thread's, not the process's:
//! a purger that was there before would stay outside, with rights that the program gave up. And
//! a filter may kill for the clone that starts the next one.

use super::fork::without_purger;
use super::instance::HEAP;
use super::purger::purger::PURGER;
use super::thread::is_inside;

/// Runs `enter`, a system call that puts the calling thread into a sandbox if it succeeds.
pub fn entering_sandbox<T, E>(enter: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    // A child of vfork does this to itself before its exec; the heap is its parent's.
    if HEAP.os.is_borrower() {
        return enter();
    }
    if !is_inside() {
        HEAP.prepare_for_sandbox();
    }
    without_purger(|| {
        let entered = enter();
        if entered.is_ok() {
            HEAP.os.confine();
            PURGER.forbid_thread();
            if is_inside() {
                PURGER.thread.end();
            }
        }
        entered
    })
}
