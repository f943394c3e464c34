//! One key of thread-specific data, whose destructor tells the core that a thread ends.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::libc;

/// The key plus 1; 0 until some thread has made one. The release exchange that publishes it pairs
/// with the acquire load of every thread that uses it.
static KEY: AtomicU32 = AtomicU32::new(0);

/// [`ebbmalloc_core::process::Hooks::on_thread_exit`].
///
/// # Safety
/// `destructor` is the same at every call, and may be called with `value` when the thread ends.
pub unsafe fn on_thread_exit(destructor: unsafe extern "C" fn(*mut u8), value: *mut u8) -> bool {
    // SAFETY: `key` returns only keys that were created.
    key(destructor).is_some_and(|key| unsafe { libc::set_specific(key, value) })
}

fn key(destructor: unsafe extern "C" fn(*mut u8)) -> Option<u32> {
    let known = KEY.load(Ordering::Acquire);
    if known != 0 {
        return Some(known - 1);
    }
    let made = libc::key_create(destructor)?;
    match KEY.compare_exchange(0, made + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(made),
        Err(theirs) => {
            // SAFETY: another thread's key is in use; nobody knows of ours.
            unsafe { libc::key_delete(made) };
            Some(theirs - 1)
        }
    }
}
