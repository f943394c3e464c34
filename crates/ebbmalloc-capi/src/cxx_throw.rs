//! What `operator new` does where memory lacks: the new-handler, `std::bad_alloc`.
//!
//! Both belong to the C++ library, which this code neither links nor needs: its names are weak, and
//! are looked for again at the time of failure, since a C program may have loaded C++ later. The
//! exception passes through frames of this file; they hold nothing to clean up.

use core::ffi::{CStr, c_void};
use core::mem::transmute;

use ebbmalloc_core::os::Os;

use crate::errno::{abort_if_told, hooks};
use crate::{KERNEL, weak_symbol};
use ebbmalloc_core::runtime;
use ebbmalloc_core::runtime::conf::Id;
use ebbmalloc_core::runtime::in_force;

type Handler = extern "C" fn();
type GetNewHandler = extern "C" fn() -> Option<Handler>;
type ThrowBadAlloc = extern "C" fn() -> !;
type NothrowNew = unsafe extern "C" fn(usize, *const c_void) -> *mut c_void;
type AlignedNothrowNew = unsafe extern "C" fn(usize, usize, *const c_void) -> *mut c_void;

/// The throwing forms: comes back with a block, or not at all.
#[cold]
#[inline(never)]
pub fn out_of_memory(size: usize, align: Option<usize>) -> *mut c_void {
    abort_if_infallible();
    let block = call_handlers(size, align);
    if block.is_null() {
        throw_bad_alloc();
    }
    block
}

/// The settings `experimental_infallible_new` and `xmalloc`: no form of `new` fails.
fn abort_if_infallible() {
    if in_force::is(Id::InfallibleNew) {
        KERNEL
            .write_stderr(b"ebbmalloc: operator new: out of memory, and experimental_infallible_new:true: aborting\n");
        KERNEL.abort();
    }
    abort_if_told();
}

/// Calls the new-handler until there is memory, or no handler any more: null then.
fn call_handlers(size: usize, align: Option<usize>) -> *mut c_void {
    while let Some(handler) = new_handler() {
        handler();
        let block = allocate(size, align);
        if !block.is_null() {
            return block.cast();
        }
    }
    core::ptr::null_mut()
}

/// The nothrow forms: a block, or null. `operator` is the form's own name with a final NUL.
///
/// A handler may throw, and only C++ can catch: the library's form of the operator does, around a
/// call of our throwing one. A static program has no other form than ours; a handler that throws
/// ends it by `std::terminate`.
#[cold]
#[inline(never)]
pub fn out_of_memory_nothrow(
    size: usize,
    align: Option<usize>,
    operator: &'static str,
    nothrow: *const c_void,
) -> *mut c_void {
    abort_if_infallible();
    if new_handler().is_none() {
        return core::ptr::null_mut();
    }
    let catching = CStr::from_bytes_with_nul(operator.as_bytes()).map(in_cxx_library);
    let catching = catching.unwrap_or(core::ptr::null());
    if catching.is_null() {
        return call_handlers(size, align);
    }
    match align {
        None => {
            // SAFETY: the C++ library's function of that name has this type.
            let operator = unsafe { transmute::<*const (), NothrowNew>(catching) };
            // SAFETY: the arguments are the program's own.
            unsafe { operator(size, nothrow) }
        }
        Some(align) => {
            // SAFETY: the C++ library's function of that name has this type.
            let operator = unsafe { transmute::<*const (), AlignedNothrowNew>(catching) };
            // SAFETY: the arguments are the program's own.
            unsafe { operator(size, align, nothrow) }
        }
    }
}

fn allocate(size: usize, align: Option<usize>) -> *mut u8 {
    match align {
        None => runtime::malloc(size),
        Some(align) => runtime::memalign(align, size),
    }
}

fn new_handler() -> Option<Handler> {
    let linked = weak_symbol!("_ZSt15get_new_handlerv");
    let found = or_in_cxx_library(linked, c"_ZSt15get_new_handlerv");
    // SAFETY: std::get_new_handler has this type.
    let get = unsafe { transmute::<*const (), Option<GetNewHandler>>(found) };
    get.and_then(|get| get())
}

fn throw_bad_alloc() -> ! {
    let linked = weak_symbol!("_ZSt17__throw_bad_allocv");
    let found = or_in_cxx_library(linked, c"_ZSt17__throw_bad_allocv");
    // SAFETY: std::__throw_bad_alloc of libstdc++ has this type.
    match unsafe { transmute::<*const (), Option<ThrowBadAlloc>>(found) } {
        Some(throw) => throw(),
        None => {
            KERNEL.write_stderr(b"ebbmalloc: operator new: out of memory, and no libstdc++ to throw std::bad_alloc\n");
            KERNEL.abort()
        }
    }
}

fn or_in_cxx_library(linked: *const (), name: &CStr) -> *const () {
    if linked.is_null() { in_cxx_library(name) } else { linked }
}

/// A symbol of libstdc++, if that is loaded, also where only a plug-in loaded it. Null if not.
fn in_cxx_library(name: &CStr) -> *const () {
    // SAFETY: the hook takes any names.
    unsafe { (hooks().loaded_symbol)(c"libstdc++.so.6", name) }
}
