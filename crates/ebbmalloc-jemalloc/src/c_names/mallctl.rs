//! `mallctl` and its kin, by name and by mib.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::call::Call;
use crate::{Errno, errno, print, tree};

fn as_errno(result: errno::Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Errno(number)) => number,
    }
}

/// Takes the text of statistics, piece by piece: the caller's pointer, a C string.
pub type WriteStatistics = unsafe extern "C" fn(*mut c_void, *const c_char);

/// Writes statistics to `write`, or where that is null to the program's `malloc_message`, or to standard
/// error. `options` is null or letters that leave parts out; `J` is for JSON.
///
/// # Safety
/// `write` takes texts with `opaque`; `options` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_stats_print(
    write: Option<WriteStatistics>,
    opaque: *mut c_void,
    options: *const c_char,
) {
    let options = if options.is_null() {
        c""
    } else {
        // SAFETY: the options are a C string (fn contract), and not null here.
        unsafe { CStr::from_ptr(options) }
    };
    match write {
        Some(write) => print::print(
            // SAFETY: the program's function takes what was given with it and a C string (fn contract).
            &mut |text| unsafe { write(opaque, text.as_ptr()) },
            options.to_bytes(),
        ),
        None => print::to_message(options),
    }
}

/// Reads, writes or does what `name` stands for. 0, or an error number; `errno` stays as it is.
///
/// # Safety
/// `name` is a C string; `old_len` is null or valid; `old` is null or writable for `*old_len` bytes;
/// `new` is null or readable for `new_len` bytes, and holds a value of the name's type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctl(
    name: *const c_char,
    old: *mut c_void,
    old_len: *mut usize,
    new: *mut c_void,
    new_len: usize,
) -> c_int {
    // SAFETY: name and buffers are valid for the lengths given with them (fn contract).
    let (name, call) = unsafe { (CStr::from_ptr(name), Call::new(&[], old, old_len, new, new_len)) };
    as_errno(tree::by_name(name.to_bytes(), &call))
}

/// Translates a name, which may be that of a group, into the numbers of [`mallctlbymib`], as many as
/// `*mib_len` has room for; says in `*mib_len` how many there are. 0, or an error number.
///
/// # Safety
/// `name` is a C string; `mib` is writable for `*mib_len` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctlnametomib(name: *const c_char, mib: *mut usize, mib_len: *mut usize) -> c_int {
    // SAFETY: the name is a C string, and `mib` has room for `*mib_len` numbers (fn contract).
    let (name, mib) = unsafe {
        let room = *mib_len;
        (CStr::from_ptr(name), if room == 0 { &mut [][..] } else { core::slice::from_raw_parts_mut(mib, room) })
    };
    as_errno(tree::name_to_mib(name.to_bytes(), mib).map(|depth| {
        // SAFETY: `mib_len` is writable (fn contract).
        unsafe { *mib_len = depth };
    }))
}

/// [`mallctl`] by the numbers of [`mallctlnametomib`], where the ones that are an index may be
/// replaced.
///
/// # Safety
/// As for [`mallctl`]; `mib` is readable for `mib_len` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctlbymib(
    mib: *const usize,
    mib_len: usize,
    old: *mut c_void,
    old_len: *mut usize,
    new: *mut c_void,
    new_len: usize,
) -> c_int {
    if mib_len == 0 {
        return Errno::ENOENT.0;
    }
    // SAFETY: `mib` has `mib_len` numbers, and the buffers are valid for the lengths given with them (fn contract).
    let call = unsafe {
        let mib = core::slice::from_raw_parts(mib, mib_len);
        Call::new(mib, old, old_len, new, new_len)
    };
    as_errno(tree::by_mib(&call))
}
