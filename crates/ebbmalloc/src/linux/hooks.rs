//! What the core needs of libc: strong references, which a static program needs to have fork handled.

use core::ffi::{CStr, c_char, c_int, c_void};

use ebbmalloc_core::os::linux::Linux;
use ebbmalloc_core::runtime::tls::ThreadKey;
use ebbmalloc_core::runtime::{self, Hooks};

static KERNEL: Linux = Linux::new();

static HOOKS: Hooks = Hooks {
    register_fork,
    on_thread_exit,
    // SAFETY: may be called at any time; a key that there is not has no value.
    thread_value: |key| unsafe { libc::pthread_getspecific(key).cast() },
    environment,
    program_settings: |_| None,
    message: |_| false,
    print_statistics: ebbmalloc_jemalloc::print::to_message,
    in_child: ebbmalloc_jemalloc::in_child,
    is_own_object: false,
    errno_location,
    write_stream,
    loaded_symbol,
};

extern "Rust" fn hooks() -> &'static Hooks {
    &HOOKS
}

// Hidden, so that two objects with an allocator each do not meet; Rust has no word for that.
core::arch::global_asm!(
    ".pushsection .text.__ebbmalloc_hooks,\"ax\",@progbits",
    ".hidden __ebbmalloc_hooks",
    ".globl __ebbmalloc_hooks",
    ".type __ebbmalloc_hooks, @function",
    "__ebbmalloc_hooks:",
    jump!("{hooks}"),
    ".size __ebbmalloc_hooks, . - __ebbmalloc_hooks",
    ".popsection",
    hooks = sym hooks,
);

unsafe extern "Rust" {
    safe fn __ebbmalloc_hooks() -> &'static Hooks;
}

/// Refers to the hooks, so that a program that links the caller links them.
#[inline(always)]
pub fn keep() {
    core::hint::black_box(__ebbmalloc_hooks as fn() -> &'static Hooks);
}

/// Runs when the process exits, after the program's own destructors.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = {
    extern "C" fn at_exit() {
        runtime::finish();
    }
    at_exit
};

type ForkHandler = unsafe extern "C" fn();

/// # Safety
/// The handlers may run around any fork from now on.
unsafe fn register_fork(prepare: ForkHandler, parent: ForkHandler, child: ForkHandler) -> bool {
    // SAFETY: the handlers may run around any fork (fn contract), and a program with this code in it does not unload it.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

static KEY: ThreadKey = ThreadKey::new();

/// # Safety
/// `destructor` is the same at every call, and may be called with `value` when the thread ends.
unsafe fn on_thread_exit(destructor: unsafe extern "C" fn(*mut u8), value: *mut u8) -> bool {
    let create = || {
        let mut key = 0;
        // SAFETY: a destructor takes a pointer, whatever its type.
        let destructor = unsafe {
            core::mem::transmute::<unsafe extern "C" fn(*mut u8), unsafe extern "C" fn(*mut c_void)>(destructor)
        };
        // SAFETY: `key` is valid to write to.
        (unsafe { libc::pthread_key_create(&mut key, Some(destructor)) } == 0).then_some(key)
    };
    let delete = |key| {
        // SAFETY: a deleted key is not in use.
        unsafe { libc::pthread_key_delete(key) };
    };
    // SAFETY: `get` passes a key that `create` made and that is not deleted.
    let set = |key| unsafe { libc::pthread_setspecific(key, value.cast()) == 0 };
    KEY.get(create, delete).is_some_and(set)
}

/// # Safety
/// The program does not change the variable later.
unsafe fn environment(name: &[u8]) -> Option<&'static [u8]> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: `environ` is libc's, and the program does not change the variable later (fn contract), so its text stays.
    unsafe { KERNEL.environment(&raw const environ, name) }
}

/// # Safety
/// None beyond the type of the hook.
unsafe fn errno_location() -> *mut c_int {
    // SAFETY: libc has it for each thread, and the function takes no argument.
    unsafe { libc::__errno_location() }
}

/// # Safety
/// `stream` is an open `FILE *`.
unsafe fn write_stream(stream: *mut c_void, text: &[u8]) -> bool {
    // SAFETY: the stream is open (fn contract), and `text` is as long as it says.
    unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), stream.cast()) == text.len() }
}

/// # Safety
/// None beyond the type of the hook.
#[cfg(not(target_feature = "crt-static"))]
unsafe fn loaded_symbol(library: &CStr, name: &CStr) -> *const () {
    // SAFETY: the name is a C string; nothing is loaded by this.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return core::ptr::null();
    }
    // SAFETY: the handle is open, and stays so: closing it would gain nothing.
    unsafe { libc::dlsym(handle, name.as_ptr()) }.cast()
}

/// # Safety
/// None beyond the type of the hook.
#[cfg(target_feature = "crt-static")]
unsafe fn loaded_symbol(_library: &CStr, _name: &CStr) -> *const () {
    core::ptr::null()
}
