//! The twenty C++ operators `new` and `delete`, by their mangled names.
//!
//! `new` never returns null: where memory lacks it calls the program's new-handler, tries again, and
//! throws `std::bad_alloc` once there is no handler. The nothrow forms return null then.

use core::ffi::c_void;

use crate::cxx_throw::{out_of_memory, out_of_memory_nothrow};
use ebbmalloc_core::runtime::{self, By, Maker, Sized};

const NEW: u8 = Maker::New as u8;
const NEW_ARRAY: u8 = Maker::NewArray as u8;
const BY_NEW: By<NEW> = By;
const BY_NEW_ARRAY: By<NEW_ARRAY> = By;

/// What the thread's cache cannot serve; apart, so that `operator new` itself needs no stack frame.
#[inline(never)]
fn new_rest<const MAKER: u8>(size: usize) -> *mut c_void {
    let block = runtime::malloc_slow_by(size, const { Maker::of(MAKER) });
    if block.is_null() {
        return out_of_memory(size, None);
    }
    block.cast()
}

fn aligned(align: usize, size: usize, maker: Maker) -> *mut u8 {
    match runtime::memalign_from_cache(align, size) {
        Some(block) => block.as_ptr(),
        None => runtime::memalign_by(align, size, maker),
    }
}

macro_rules! operators_new {
    ($($maker:ident: $name:ident, $nothrow:ident, $aligned:ident, $aligned_nothrow:ident;)+) => {$(
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
                None => new_rest::<{ Maker::$maker as u8 }>(size),
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
                None => runtime::malloc_slow_by(size, Maker::$maker),
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
            let block = aligned(align, size, Maker::$maker);
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
            let block = aligned(align, size, Maker::$maker);
            if block.is_null() {
                let operator = concat!(stringify!($aligned_nothrow), "\0");
                return out_of_memory_nothrow(size, Some(align), operator, nothrow);
            }
            block.cast()
        }
    )+};
}

operators_new! {
    New: _Znwm, _ZnwmRKSt9nothrow_t, _ZnwmSt11align_val_t, _ZnwmSt11align_val_tRKSt9nothrow_t;
    NewArray: _Znam, _ZnamRKSt9nothrow_t, _ZnamSt11align_val_t, _ZnamSt11align_val_tRKSt9nothrow_t;
}

macro_rules! operators_delete {
    ($($name:ident ( $($argument:ident),* ) $said:expr;)+) => {$(
        /// A form of `operator delete`; only strict mode looks at its further arguments.
        ///
        /// # Safety
        /// As for `free`.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(block: *mut c_void, $($argument: usize),*) {
            // SAFETY: the program frees a block from here, or null, and does not use it again (contract of `free`).
            unsafe { runtime::free_as(block.cast(), $said) }
        }
    )+};
}

operators_delete! {
    _ZdlPv() BY_NEW;
    _ZdaPv() BY_NEW_ARRAY;
    _ZdlPvRKSt9nothrow_t(_nothrow) BY_NEW;
    _ZdaPvRKSt9nothrow_t(_nothrow) BY_NEW_ARRAY;
    _ZdlPvSt11align_val_t(_align) BY_NEW;
    _ZdaPvSt11align_val_t(_align) BY_NEW_ARRAY;
    _ZdlPvSt11align_val_tRKSt9nothrow_t(_align, _nothrow) BY_NEW;
    _ZdaPvSt11align_val_tRKSt9nothrow_t(_align, _nothrow) BY_NEW_ARRAY;
    _ZdlPvm(size) Sized::<NEW>(size);
    _ZdaPvm(size) Sized::<NEW_ARRAY>(size);
    _ZdlPvmSt11align_val_t(size, _align) Sized::<NEW>(size);
    _ZdaPvmSt11align_val_t(size, _align) Sized::<NEW_ARRAY>(size);
}
