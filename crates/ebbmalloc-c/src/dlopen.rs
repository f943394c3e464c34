//! `dlopen`, for two ends. RTLD_DEEPBIND is taken out: a library that is loaded with that flag finds libc's `malloc` and
//! `free` before ours, and frees with the one what it got from the other. And CPython is found when it is loaded late.
//!
//! The loader goes by its caller where it searches a library (RUNPATH, `$ORIGIN`, the namespace). So libc's function is
//! jumped to with the caller's return address, not called, wherever the caller can matter.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::{cpython, loaded, weak_function};

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
/// `dlsym(3)`.
pub type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *const ();
type Dlerror = unsafe extern "C" fn() -> *mut c_char;

/// libc's function, once somebody asked for it. Relaxed: every thread finds the same.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// `dlopen(3)`. RTLD_DEEPBIND is 8 in glibc; musl knows no such flag.
///
/// # Safety
/// As in C.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "and esi, -9",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {opener}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 2f",
        "ret",
        "2:",
        "jmp rax",
        opener = sym opener,
    )
}

/// `dlopen(3)`. RTLD_DEEPBIND is 8 in glibc; musl knows no such flag.
///
/// # Safety
/// As in C.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "and w1, w1, #0xfffffff7",
        "stp x0, x1, [sp, #-32]!",
        "str x30, [sp, #16]",
        "bl {opener}",
        "mov x16, x0",
        "ldr x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "cbnz x16, 2f",
        "mov x0, xzr",
        "ret",
        "2:",
        "br x16",
        opener = sym opener,
    )
}

/// Who opens `file`: libc's `dlopen`, or [`open_and_look`]. Null if libc has none.
extern "C" fn opener(file: *const c_char) -> *const () {
    let next = match NEXT.load(Ordering::Relaxed) {
        next if next.is_null() => find(),
        next => next,
    };
    // SAFETY: a name that is not null is a C string.
    let is_path = !file.is_null() && unsafe { is_plain_path(CStr::from_ptr(file)) };
    if is_path && !next.is_null() && cpython::may_come() { open_and_look as *const () } else { next.cast() }
}

/// Whether the name means the same file for every caller: no search, nothing to expand.
fn is_plain_path(name: &CStr) -> bool {
    name.to_bytes().contains(&b'/') && !name.to_bytes().contains(&b'$')
}

/// Has libc open the library, and looks for CPython in it.
unsafe extern "C" fn open_and_look(file: *const c_char, flags: c_int) -> *mut c_void {
    let earlier = loaded::count();
    // SAFETY: `opener` found libc's function, which has this type.
    let handle = unsafe {
        let next = transmute::<*mut c_void, Dlopen>(NEXT.load(Ordering::Relaxed));
        next(file, flags)
    };
    let (Some(dlsym), Some(dlerror)) = (dlsym(), weak_function!("dlerror" as Dlerror)) else {
        return handle;
    };
    if !handle.is_null() {
        // SAFETY: the handle is open, and the names are C strings.
        cpython::look_in(|name| unsafe { dlsym(handle, name.as_ptr()) }, earlier);
        // SAFETY: may be called at any time. The program may ask for the errors of this thread, and its call had none.
        unsafe { dlerror() };
    }
    handle
}

/// libc's `dlopen`; null if there is none.
extern "C" fn find() -> *mut c_void {
    const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
    let found = match dlsym() {
        // SAFETY: the caller is this object, so the next one follows it.
        Some(dlsym) => unsafe { dlsym(RTLD_NEXT, c"dlopen".as_ptr()).cast_mut().cast() },
        None => find_in_libdl(),
    };
    NEXT.store(found, Ordering::Relaxed);
    found
}

/// libc's `dlsym`, where the program has it.
pub fn dlsym() -> Option<Dlsym> {
    weak_function!("dlsym" as Dlsym)
}

/// Before glibc 2.34 `dlopen` and `dlsym` are in a library of their own, which a program may load late.
fn find_in_libdl() -> *mut c_void {
    /// RTLD_NOW, and the flag by which libc's own calls are known.
    const NOW_FOR_LIBC: c_int = 2 | (1 << 31);
    let open = weak_function!("__libc_dlopen_mode" as Dlopen);
    let symbol = weak_function!("__libc_dlsym" as Dlsym);
    let (Some(open), Some(symbol)) = (open, symbol) else {
        return null_mut();
    };
    // SAFETY: the names are C strings; who calls dlopen has loaded the library already.
    unsafe {
        match open(c"libdl.so.2".as_ptr(), NOW_FOR_LIBC) {
            library if library.is_null() => library,
            library => symbol(library, c"dlopen".as_ptr()).cast_mut().cast(),
        }
    }
}

/// Opens a library only if the program has it loaded; null if not.
pub fn open_loaded(library: &CStr) -> *mut c_void {
    /// RTLD_LAZY | RTLD_NOLOAD.
    const ONLY_IF_LOADED: c_int = 1 | 4;
    // SAFETY: the name is a C string; nothing is loaded by this.
    unsafe { dlopen(library.as_ptr(), ONLY_IF_LOADED) }
}
