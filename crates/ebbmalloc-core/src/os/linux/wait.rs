//! Sleeping and waking by futex.

use core::sync::atomic::AtomicU32;

use super::arch::nr;
use super::call::call;

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
const FUTEX_PRIVATE: usize = 128;

/// [`super::Os::wait`].
pub fn wait(word: &AtomicU32, expected: u32, timeout_ms: Option<u64>) {
    wait_as(FUTEX_WAIT | FUTEX_PRIVATE, word, expected, timeout_ms);
}

/// [`super::Os::wake`].
pub fn wake(word: &AtomicU32, count: u32) {
    wake_as(FUTEX_WAKE | FUTEX_PRIVATE, word, count);
}

/// Sleeps while `word` holds `expected`, on a futex that is not private: at a thread's end the kernel wakes only such
/// futexes (CLONE_CHILD_CLEARTID).
pub fn wait_shared(word: &AtomicU32, expected: u32, timeout_ms: Option<u64>) {
    wait_as(FUTEX_WAIT, word, expected, timeout_ms);
}

/// Wakes all that sleep in [`wait_shared`].
pub fn wake_shared(word: &AtomicU32) {
    wake_as(FUTEX_WAKE, word, u32::MAX);
}

fn wait_as(operation: usize, word: &AtomicU32, expected: u32, timeout_ms: Option<u64>) {
    let timeout = timeout_ms.map(|ms| [ms / 1000, ms % 1000 * 1_000_000]);
    let timeout_at = timeout.as_ref().map_or(0, |timespec| timespec.as_ptr() as usize);
    let arguments = [word.as_ptr() as usize, operation, expected as usize, timeout_at];
    // SAFETY: the kernel reads the word and the timespec, both of which outlive the call.
    let _ = unsafe { call(nr::FUTEX, arguments) };
}

fn wake_as(operation: usize, word: &AtomicU32, count: u32) {
    let count = count.min(i32::MAX as u32) as usize;
    // SAFETY: the kernel uses the address as a name only.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as usize, operation, count]) };
}
