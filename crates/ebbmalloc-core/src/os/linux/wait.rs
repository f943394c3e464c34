//! Sleeping and waking by futex.

use core::sync::atomic::AtomicU32;

use super::arch::nr;
use super::call::call;

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
const FUTEX_PRIVATE: usize = 128;

/// [`super::Os::wait`].
pub fn wait(word: &AtomicU32, expected: u32, timeout_ms: Option<u64>) {
    let timeout = timeout_ms.map(|ms| [ms / 1000, ms % 1000 * 1_000_000]);
    let timeout_at = timeout
        .as_ref()
        .map_or(0, |timespec| timespec.as_ptr() as usize);
    let arguments = [
        word.as_ptr() as usize,
        FUTEX_WAIT | FUTEX_PRIVATE,
        expected as usize,
        timeout_at,
    ];
    // SAFETY: the kernel reads the word and the timespec, both of which outlive the call.
    let _ = unsafe { call(nr::FUTEX, arguments) };
}

/// [`super::Os::wake`].
pub fn wake(word: &AtomicU32, count: u32) {
    let count = count.min(i32::MAX as u32) as usize;
    // SAFETY: the kernel uses the address as a name only.
    let _ = unsafe {
        call(
            nr::FUTEX,
            [word.as_ptr() as usize, FUTEX_WAKE | FUTEX_PRIVATE, count],
        )
    };
}

/// Sleeps while `word` holds `expected`, woken by the kernel itself when a thread has ended
/// (CLONE_CHILD_CLEARTID), which wakes across processes: no private futex.
pub fn wait_for_kernel(word: &AtomicU32, expected: u32) {
    // SAFETY: the kernel reads the word, which outlives the call.
    let _ = unsafe {
        call(
            nr::FUTEX,
            [word.as_ptr() as usize, FUTEX_WAIT, expected as usize, 0],
        )
    };
}

/// Wakes all that sleep in [`wait_for_kernel`]: at a thread's end the kernel wakes one of them.
pub fn wake_for_kernel(word: &AtomicU32) {
    // SAFETY: the kernel uses the address as a name only.
    let _ = unsafe {
        call(
            nr::FUTEX,
            [word.as_ptr() as usize, FUTEX_WAKE, i32::MAX as usize],
        )
    };
}
