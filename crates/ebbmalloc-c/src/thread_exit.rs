//! One key of thread-specific data, whose destructor tells the core that a thread ends.

use ebbmalloc_core::runtime::tls::ThreadKey;

use crate::libc;

static KEY: ThreadKey = ThreadKey::new();

/// [`ebbmalloc_core::runtime::Hooks::on_thread_exit`].
///
/// # Safety
/// `destructor` is the same at every call, and may be called with `value` when the thread ends.
pub unsafe fn on_thread_exit(destructor: unsafe extern "C" fn(*mut u8), value: *mut u8) -> bool {
    // SAFETY: a deleted key is not in use.
    let delete = |key| unsafe { libc::key_delete(key) };
    // SAFETY: the key exists.
    let set = |key| unsafe { libc::set_specific(key, value) };
    KEY.get(|| libc::key_create(destructor), delete).is_some_and(set)
}
