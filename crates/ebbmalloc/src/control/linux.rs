//! The control tree of this process.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use ebbmalloc_jemalloc::call::Call;
use ebbmalloc_jemalloc::tree::DEPTH;

use super::{Error, Result};

/// The numbers that stand for a name.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    numbers: [usize; DEPTH],
    depth: usize,
}

/// A value as the tree holds it.
///
/// # Safety
/// Any bytes that a node of this type can hold are a valid `Self::Form`.
pub unsafe trait Held: Copy {
    #[doc(hidden)]
    type Form: Copy;
    #[doc(hidden)]
    fn from_form(form: Self::Form) -> Result<Self>;
    #[doc(hidden)]
    fn into_form(self) -> Self::Form;
}

macro_rules! held_as_it_is {
    ($($type:ty),*) => {$(
        // SAFETY: C's type of the same size; a node of `bool` holds nothing but 0 and 1.
        unsafe impl Held for $type {
            type Form = Self;
            fn from_form(form: Self) -> Result<Self> {
                Ok(form)
            }
            fn into_form(self) -> Self {
                self
            }
        }
    )*};
}

held_as_it_is!(bool, u32, u64, i64, usize, isize, *mut u64, *const c_char);

// SAFETY: any address is a valid pointer; whether it can be followed is the reader's promise.
unsafe impl Held for &'static str {
    type Form = *const c_char;
    fn from_form(form: *const c_char) -> Result<Self> {
        if form.is_null() {
            return Err(Error::INVALID);
        }
        // SAFETY: a text of the tree is a C string that lives as long as the process.
        let text = unsafe { CStr::from_ptr(form) };
        text.to_str().map_err(|_| Error::INVALID)
    }
    fn into_form(self) -> *const c_char {
        // What it leads to need not end with a zero: `raw::write` says so.
        self.as_ptr().cast()
    }
}

// SAFETY: any address is a valid pointer; `from_form` alone follows it, and the tree holds texts as C strings.
unsafe impl Held for &'static CStr {
    type Form = *const c_char;
    fn from_form(form: *const c_char) -> Result<Self> {
        if form.is_null() {
            return Err(Error::INVALID);
        }
        // SAFETY: a text of the tree is a C string that lives as long as the process, and it is not null here.
        Ok(unsafe { CStr::from_ptr(form) })
    }
    fn into_form(self) -> *const c_char {
        self.as_ptr()
    }
}

/// Where the name leads.
pub fn look_up(name: &[u8]) -> Result<Place> {
    let mut numbers = [0; DEPTH];
    let depth = ebbmalloc_jemalloc::name_to_mib(name, &mut numbers).map_err(error)?;
    Ok(Place { numbers, depth })
}

fn error(errno: ebbmalloc_jemalloc::Errno) -> Error {
    Error::new(errno.0)
}

/// # Safety
/// `old` is null or a value that `old_bytes` is the size of; `new` likewise.
unsafe fn call(place: &Place, old: *mut c_void, old_bytes: usize, new: *const c_void, new_bytes: usize) -> Result<()> {
    let mut got = old_bytes;
    let length = if old.is_null() { null_mut() } else { &raw mut got };
    let mib = &place.numbers[..place.depth];
    // SAFETY: each pointer is null or leads to as many bytes as are given with it (fn contract); `length` leads to `got`,
    // which outlives the call.
    let call = unsafe { Call::new(mib, old, length, new, new_bytes) };
    ebbmalloc_jemalloc::by_mib(&call).map_err(error)?;
    if got == old_bytes { Ok(()) } else { Err(Error::INVALID) }
}

/// # Safety
/// The name's values are of this type, or integers of its size where it is one.
pub unsafe fn read<T: Held>(place: &Place) -> Result<T> {
    let mut form = std::mem::MaybeUninit::<T::Form>::uninit();
    let bytes = size_of::<T::Form>();
    // SAFETY: `form` is a place for one `Form`, and `bytes` is its size.
    unsafe { call(place, form.as_mut_ptr().cast(), bytes, null_mut(), 0) }?;
    // SAFETY: `call` succeeds only if as many bytes were written as a `Form` has, and the name's values are of this type
    // (fn contract).
    T::from_form(unsafe { form.assume_init() })
}

/// # Safety
/// The name takes values of this type.
pub unsafe fn write<T: Held>(place: &Place, value: T) -> Result<()> {
    let form = value.into_form();
    let bytes = size_of::<T::Form>();
    // SAFETY: `form` is a `Form`, and `bytes` is its size.
    unsafe { call(place, null_mut(), 0, (&raw const form).cast(), bytes) }
}

/// # Safety
/// The name's values are of this type, and it takes them.
pub unsafe fn update<T: Held>(place: &Place, value: T) -> Result<T> {
    let form = value.into_form();
    let mut old = std::mem::MaybeUninit::<T::Form>::uninit();
    let bytes = size_of::<T::Form>();
    // SAFETY: `old` is a place for one `Form`, `form` is one, and `bytes` is the size of each.
    unsafe { call(place, old.as_mut_ptr().cast(), bytes, (&raw const form).cast(), bytes) }?;
    // SAFETY: `call` succeeds only if as many bytes were written as a `Form` has, and the name's values are of this type
    // (fn contract).
    T::from_form(unsafe { old.assume_init() })
}

/// Does what a name stands for that has no value.
pub fn act(place: &Place) -> Result<()> {
    // SAFETY: nothing is read or written.
    unsafe { call(place, null_mut(), 0, null_mut(), 0) }
}

/// Statistics, piece by piece.
pub fn print(sink: &mut dyn FnMut(&CStr), options: &[u8]) {
    ebbmalloc_jemalloc::print::print(sink, options);
}
