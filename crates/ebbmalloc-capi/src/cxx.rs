//! The twenty C++ operators `new` and `delete`, by their mangled names.
//!
//! `new` never returns null: where memory lacks it calls the program's new-handler, tries again, and
//! throws `std::bad_alloc` once there is no handler. The nothrow forms return null then.

use core::ffi::c_void;

use crate::cxx_throw::{out_of_memory, out_of_memory_nothrow};
use ebbmalloc_core::runtime;

/// What the thread's cache cannot serve; apart, so that `operator new` itself needs no stack frame.
#[inline(never)]
fn new_rest(size: usize) -> *mut c_void {
    let block = runtime::malloc_slow(size);
    if block.is_null() {
        return out_of_memory(size, None);
    }
    block.cast()
}

fn aligned(align: usize, size: usize) -> *mut u8 {
    match runtime::memalign_from_cache(align, size) {
        Some(block) => block.as_ptr(),
        None => runtime::memalign(align, size),
    }
}

macro_rules! operators_new {
    ($($name:ident, $nothrow:ident, $aligned:ident, $aligned_nothrow:ident;)+) => {$(
        /// `operator new(std::size_t)` or its form for arrays.
        ///
        /// # Safety
        /// As for `malloc`.
        #[unsafe(no_mangle)]
        #[inline(never)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(size: usize) -> *mut c_void {
            match runtime::malloc_from_cache(size) {
                Some(block) => block.as_ptr().cast(),
                None => new_rest(size),
            }
        }

        /// `operator new(std::size_t, const std::nothrow_t &)` or its form for arrays.
        ///
        /// # Safety
        /// As for `malloc`.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $nothrow(size: usize, nothrow: *const c_void) -> *mut c_void {
            let block = match runtime::malloc_from_cache(size) {
                Some(block) => block.as_ptr(),
                None => runtime::malloc_slow(size),
            };
            if block.is_null() {
                let operator = concat!(stringify!($nothrow), "\0");
                return out_of_memory_nothrow(size, None, operator, nothrow);
            }
            block.cast()
        }

        /// `operator new(std::size_t, std::align_val_t)` or its form for arrays.
        ///
        /// # Safety
        /// As for `malloc`; `align` is a power of two.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $aligned(size: usize, align: usize) -> *mut c_void {
            let block = aligned(align, size);
            if block.is_null() {
                return out_of_memory(size, Some(align));
            }
            block.cast()
        }

        /// `operator new(std::size_t, std::align_val_t, const std::nothrow_t &)` or its form for
        /// arrays.
        ///
        /// # Safety
        /// As for `malloc`; `align` is a power of two.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $aligned_nothrow(
            size: usize,
            align: usize,
            nothrow: *const c_void,
        ) -> *mut c_void {
            let block = aligned(align, size);
            if block.is_null() {
                let operator = concat!(stringify!($aligned_nothrow), "\0");
                return out_of_memory_nothrow(size, Some(align), operator, nothrow);
            }
            block.cast()
        }
    )+};
}

operators_new! {
    _Znwm, _ZnwmRKSt9nothrow_t, _ZnwmSt11align_val_t, _ZnwmSt11align_val_tRKSt9nothrow_t;
    _Znam, _ZnamRKSt9nothrow_t, _ZnamSt11align_val_t, _ZnamSt11align_val_tRKSt9nothrow_t;
}

macro_rules! operators_delete {
    ($($name:ident ( $($argument:ident),* );)+) => {$(
        /// A form of `operator delete` whose further arguments are not needed.
        ///
        /// # Safety
        /// As for `free`.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(block: *mut c_void, $($argument: usize),*) {
            // SAFETY: the program frees a block from here, or null, and does not use it again (contract of `free`).
            unsafe { runtime::free(block.cast()) }
        }
    )+};
}

operators_delete! {
    _ZdlPv();
    _ZdaPv();
    _ZdlPvRKSt9nothrow_t(_nothrow);
    _ZdaPvRKSt9nothrow_t(_nothrow);
    _ZdlPvSt11align_val_t(_align);
    _ZdaPvSt11align_val_t(_align);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(_align, _nothrow);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(_align, _nothrow);
    _ZdlPvm(_size);
    _ZdaPvm(_size);
    _ZdlPvmSt11align_val_t(_size, _align);
    _ZdaPvmSt11align_val_t(_size, _align);
}
