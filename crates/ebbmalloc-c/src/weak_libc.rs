//! libc's names as the preload object references them: weakly, each null where libc lacks it.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;

use ebbmalloc_capi::weak_symbol;

use crate::dlopen;
use crate::late_threads;
use crate::weak_function;

type ForkHandler = unsafe extern "C" fn();
type RegisterAtfork = unsafe extern "C" fn(ForkHandler, ForkHandler, ForkHandler, *mut c_void) -> c_int;
type PthreadAtfork = unsafe extern "C" fn(ForkHandler, ForkHandler, ForkHandler) -> c_int;
type KeyCreate = unsafe extern "C" fn(*mut u32, unsafe extern "C" fn(*mut u8)) -> c_int;
type KeyDelete = unsafe extern "C" fn(u32) -> c_int;
type SetSpecific = unsafe extern "C" fn(u32, *const u8) -> c_int;
type GetSpecific = unsafe extern "C" fn(u32) -> *mut u8;
type ErrnoLocation = unsafe extern "C" fn() -> *mut c_int;
type Fwrite = unsafe extern "C" fn(*const u8, usize, usize, *mut c_void) -> usize;

/// A function for threads, which may come late.
macro_rules! thread_function {
    ($name:literal as $type:ty) => {
        weak_function!($name as $type).or_else(|| -> Option<$type> {
            let name = CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()).ok()?;
            // SAFETY: libpthread's function of that name has this type.
            unsafe { transmute::<*const (), Option<$type>>(late_threads::function(name)) }
        })
    };
}

/// [`ebbmalloc_core::runtime::Hooks::register_fork`]. glibc's `pthread_atfork` is one for old
/// programs only, so its `__register_atfork` comes first; musl has the standard's name.
///
/// # Safety
/// The handlers may run around any fork from now on.
pub unsafe fn register_fork(prepare: ForkHandler, parent: ForkHandler, child: ForkHandler) -> bool {
    if let Some(register) = weak_function!("__register_atfork" as RegisterAtfork) {
        // No object owns the handlers: this one is never unloaded.
        // SAFETY: the handlers may run around any fork (fn contract), and this object, which has their code, is never
        // unloaded.
        return unsafe { register(prepare, parent, child, core::ptr::null_mut()) } == 0;
    }
    match weak_function!("pthread_atfork" as PthreadAtfork) {
        // SAFETY: the handlers may run around any fork (fn contract), and this object, which has their code, is never
        // unloaded.
        Some(register) => unsafe { register(prepare, parent, child) == 0 },
        None => false,
    }
}

/// A key whose values go to `destructor` at their threads' ends.
pub fn key_create(destructor: unsafe extern "C" fn(*mut u8)) -> Option<u32> {
    let create = thread_function!("pthread_key_create" as KeyCreate)?;
    let mut key = 0;
    // SAFETY: `key` is valid to write to.
    (unsafe { create(&mut key, destructor) } == 0).then_some(key)
}

/// Gives a key back.
///
/// # Safety
/// The key is not in use.
pub unsafe fn key_delete(key: u32) {
    if let Some(delete) = thread_function!("pthread_key_delete" as KeyDelete) {
        // SAFETY: a key of this type comes from `key_create`, and is not in use any more (fn contract).
        unsafe { delete(key) };
    }
}

/// Sets the calling thread's value.
///
/// # Safety
/// `key` comes from [`key_create`].
pub unsafe fn set_specific(key: u32, value: *const u8) -> bool {
    match thread_function!("pthread_setspecific" as SetSpecific) {
        // SAFETY: the key exists, since `key_create` made it (fn contract); any value may be stored.
        Some(set) => unsafe { set(key, value) == 0 },
        None => false,
    }
}

/// [`ebbmalloc_core::runtime::Hooks::thread_value`].
///
/// # Safety
/// None beyond the type of the hook.
pub unsafe fn get_specific(key: u32) -> *mut u8 {
    match weak_function!("pthread_getspecific" as GetSpecific) {
        // SAFETY: may be called at any time; a key that there is not has no value.
        Some(get) => unsafe { get(key) },
        None => core::ptr::null_mut(),
    }
}

/// [`ebbmalloc_core::runtime::Hooks::errno_location`].
///
/// # Safety
/// None beyond the type of the hook.
pub unsafe fn errno_location() -> *mut c_int {
    match weak_function!("__errno_location" as ErrnoLocation) {
        // SAFETY: may be called at any time.
        Some(location) => unsafe { location() },
        None => core::ptr::null_mut(),
    }
}

/// [`ebbmalloc_core::runtime::Hooks::write_stream`].
///
/// # Safety
/// `stream` is an open `FILE *`.
pub unsafe fn write_stream(stream: *mut c_void, text: &[u8]) -> bool {
    match weak_function!("fwrite" as Fwrite) {
        // SAFETY: the stream is open (fn contract), and `text` has `text.len()` bytes.
        Some(fwrite) => unsafe { fwrite(text.as_ptr(), 1, text.len(), stream) == text.len() },
        None => false,
    }
}

/// [`ebbmalloc_core::runtime::Hooks::loaded_symbol`].
///
/// # Safety
/// None beyond the type of the hook.
pub unsafe fn loaded_symbol(library: &CStr, name: &CStr) -> *const () {
    let Some(dlsym) = dlopen::dlsym() else {
        return core::ptr::null();
    };
    let handle = dlopen::open_loaded(library);
    if handle.is_null() {
        return core::ptr::null();
    }
    // SAFETY: the handle is open, and stays so: closing it would gain nothing.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// Address of the variable `environ`, null if there is none.
pub fn environ() -> *const *const *const c_char {
    weak_symbol!("environ").cast()
}

// An atomic operation on aarch64 is a call of the compiler's library, which chooses between two
// instructions by what its constructor asked libc. That constructor is linked in, and its question
// would be the one name that libc must have: it is answered here, so that nothing is asked. The
// operations are the ones that every processor has, before and after the constructor ran.
#[cfg(target_arch = "aarch64")]
extern "C" fn no_feature(_: usize) -> usize {
    0
}

#[cfg(target_arch = "aarch64")]
hidden_names! { "getauxval" is no_feature, }
