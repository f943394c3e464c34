//! Functions of a libpthread that was loaded late. Before glibc 2.34 it is a library of its own: a program without threads
//! may get it by `dlopen`, when the loader has bound our weak references already, to nothing.
//!
//! `dlsym` takes the loader's lock. Another thread has that lock while it runs constructors, and one of these may wait
//! for the thread that asks here. So the library is searched for in the list for debuggers, under the lock of
//! `dl_iterate_phdr`, which is held only while the list is changed or read.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use ebbmalloc_capi::weak_symbol;

use crate::weak_function;

/// `struct link_map`, as far as debuggers know it; what `dlopen` returns points to one.
#[repr(C)]
struct Map {
    base: usize,
    name: *const c_char,
    dynamic: *const (),
    next: *mut Map,
}

/// The beginning of `struct r_debug`.
#[repr(C)]
struct Debug {
    version: c_int,
    map: *mut Map,
}

type Visit = unsafe extern "C" fn(*const c_void, usize, *mut c_void) -> c_int;
type IteratePhdr = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;
type LibcDlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *const ();

/// The library, once it was found; it is never unloaded. Relaxed: every thread finds the same.
static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The function `name` of libpthread; null where there is none.
pub fn function(name: &CStr) -> *const () {
    let Some(symbol) = weak_function!("__libc_dlsym" as LibcDlsym) else {
        return null_mut();
    };
    let library = match LIBRARY.load(Ordering::Relaxed) {
        library if library.is_null() => find(),
        library => library,
    };
    if library.is_null() {
        return null_mut();
    }
    // SAFETY: `library` is a handle of a library that stays loaded, and `name` is a C string. libc's own function looks
    // into the library's tables without a lock.
    unsafe { symbol(library, name.as_ptr()) }
}

fn find() -> *mut c_void {
    let mut found: *mut c_void = null_mut();
    if let Some(iterate) = weak_function!("dl_iterate_phdr" as IteratePhdr) {
        // SAFETY: `visit` takes what it is called with, and `found` outlives the call.
        unsafe { iterate(visit, (&raw mut found).cast()) };
    }
    LIBRARY.store(found, Ordering::Relaxed);
    found
}

/// Called once, under the lock of the list.
unsafe extern "C" fn visit(_: *const c_void, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader's variable of this name is such a structure, or there is none.
    let debug = unsafe { weak_symbol!("_r_debug").cast::<Debug>().as_ref() };
    let mut next = debug.map_or(null_mut(), |debug| debug.map);
    // SAFETY: the lock keeps the list, whose last entry has no next one.
    while let Some(map) = unsafe { next.as_ref() } {
        // SAFETY: the name is a C string.
        if !map.name.is_null() && is_libpthread(unsafe { CStr::from_ptr(map.name) }.to_bytes()) {
            // SAFETY: `find` passes the address of a pointer.
            unsafe { found.cast::<*mut c_void>().write(next.cast()) };
            return 1;
        }
        next = map.next;
    }
    1
}

fn is_libpthread(path: &[u8]) -> bool {
    path.ends_with(b"/libpthread.so.0")
}
