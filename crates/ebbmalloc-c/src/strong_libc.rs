//! libc's names as the archive references them: strongly, so that a static program contains them.

use core::ffi::{CStr, c_char, c_int, c_void};

type ForkHandler = unsafe extern "C" fn();

mod names {
    use super::{ForkHandler, c_char, c_int, c_void};

    unsafe extern "C" {
        pub static environ: *const *const c_char;
        pub fn pthread_atfork(prepare: ForkHandler, parent: ForkHandler, child: ForkHandler) -> c_int;
        pub fn pthread_key_create(key: *mut u32, destructor: unsafe extern "C" fn(*mut u8)) -> c_int;
        pub fn pthread_key_delete(key: u32) -> c_int;
        pub fn pthread_setspecific(key: u32, value: *const u8) -> c_int;
        pub fn pthread_getspecific(key: u32) -> *mut u8;
        pub fn __errno_location() -> *mut c_int;
        pub fn fwrite(text: *const u8, size: usize, count: usize, stream: *mut c_void) -> usize;
    }
}

/// [`ebbmalloc_core::runtime::Hooks::register_fork`].
///
/// # Safety
/// The handlers may run around any fork from now on.
pub unsafe fn register_fork(prepare: ForkHandler, parent: ForkHandler, child: ForkHandler) -> bool {
    // SAFETY: the handlers may run around any fork (fn contract), and their code is part of the program.
    unsafe { names::pthread_atfork(prepare, parent, child) == 0 }
}

/// A key whose values go to `destructor` at their threads' ends.
pub fn key_create(destructor: unsafe extern "C" fn(*mut u8)) -> Option<u32> {
    let mut key = 0;
    // SAFETY: `key` is valid to write to.
    (unsafe { names::pthread_key_create(&mut key, destructor) } == 0).then_some(key)
}

/// Gives a key back.
///
/// # Safety
/// The key is not in use.
pub unsafe fn key_delete(key: u32) {
    // SAFETY: a key of this type comes from `key_create`, and is not in use any more (fn contract).
    unsafe { names::pthread_key_delete(key) };
}

/// Sets the calling thread's value.
///
/// # Safety
/// `key` comes from [`key_create`].
pub unsafe fn set_specific(key: u32, value: *const u8) -> bool {
    // SAFETY: the key exists, since `key_create` made it (fn contract); any value may be stored.
    unsafe { names::pthread_setspecific(key, value) == 0 }
}

/// [`ebbmalloc_core::runtime::Hooks::thread_value`].
///
/// # Safety
/// None beyond the type of the hook.
pub unsafe fn get_specific(key: u32) -> *mut u8 {
    // SAFETY: may be called at any time; a key that there is not has no value.
    unsafe { names::pthread_getspecific(key) }
}

/// [`ebbmalloc_core::runtime::Hooks::errno_location`].
///
/// # Safety
/// None beyond the type of the hook.
pub unsafe fn errno_location() -> *mut c_int {
    // SAFETY: may be called at any time.
    unsafe { names::__errno_location() }
}

/// [`ebbmalloc_core::runtime::Hooks::write_stream`].
///
/// # Safety
/// `stream` is an open `FILE *`.
pub unsafe fn write_stream(stream: *mut c_void, text: &[u8]) -> bool {
    // SAFETY: the stream is open (fn contract), and `text` has `text.len()` bytes.
    unsafe { names::fwrite(text.as_ptr(), 1, text.len(), stream) == text.len() }
}

/// [`ebbmalloc_core::runtime::Hooks::loaded_symbol`]. The archive never looks: what a program that
/// links it wants of C++ is linked with it, and a reference to dlopen makes every static link warn.
///
/// # Safety
/// None beyond the type of the hook.
pub unsafe fn loaded_symbol(_library: &CStr, _name: &CStr) -> *const () {
    core::ptr::null()
}

/// Address of the variable `environ`.
pub fn environ() -> *const *const *const c_char {
    &raw const names::environ
}
