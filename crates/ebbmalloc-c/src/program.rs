//! The variables that jemalloc's users set in their programs: `malloc_conf` and its like, and
//! `malloc_message`.
//!
//! The preload object defines them, empty, and a program that defines one of its own is what the loader
//! resolves the name to, for this object too: so each is reached through the offset table. A static program
//! has its own or none, so the archive refers to them weakly.

use core::ffi::{CStr, c_char, c_void};

/// What `malloc_message` points to: takes the caller's pointer and a text.
type Message = unsafe extern "C" fn(*mut c_void, *const c_char);

#[cfg(not(feature = "archive"))]
mod defined {
    #![allow(non_upper_case_globals)]

    use core::ffi::c_char;
    use core::ptr::null_mut;
    use core::sync::atomic::AtomicPtr;

    /// Settings of the program's, before those of the environment.
    #[unsafe(no_mangle)]
    pub static malloc_conf: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
    /// Settings of the program's that win over all others.
    #[unsafe(no_mangle)]
    pub static malloc_conf_2_conf_harder: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
    /// Who takes statistics and other words instead of standard error: a function, or null.
    #[unsafe(no_mangle)]
    pub static malloc_message: AtomicPtr<()> = AtomicPtr::new(null_mut());
}

/// Address of a variable, null where there is none.
#[cfg(not(feature = "archive"))]
macro_rules! variable {
    ($name:ident, $text:literal) => {
        (&raw const defined::$name).cast::<()>()
    };
}
/// Address of a variable, null where there is none.
#[cfg(feature = "archive")]
macro_rules! variable {
    ($name:ident, $text:literal) => {
        ebbmalloc_capi::weak_symbol!($text)
    };
}

/// [`ebbmalloc_core::runtime::Hooks::program_settings`].
pub fn settings(which: usize) -> Option<&'static [u8]> {
    let variable = match which {
        0 => variable!(malloc_conf, "malloc_conf"),
        _ => variable!(malloc_conf_2_conf_harder, "malloc_conf_2_conf_harder"),
    };
    // SAFETY: a variable of that name is a pointer to a C string, or null.
    let text = unsafe { variable.cast::<*const c_char>().as_ref() }?;
    // SAFETY: the pointer is not null, so it leads to a C string, which the program does not change.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(*text) }.to_bytes())
}

/// [`ebbmalloc_core::runtime::Hooks::message`].
pub fn message(text: &CStr) -> bool {
    let variable = variable!(malloc_message, "malloc_message");
    // SAFETY: a variable of that name is a pointer to such a function, or null.
    let message = unsafe { variable.cast::<Option<Message>>().as_ref() };
    let Some(message) = message.copied().flatten() else {
        return false;
    };
    // SAFETY: the program's function takes any text.
    unsafe { message(core::ptr::null_mut(), text.as_ptr()) };
    true
}
