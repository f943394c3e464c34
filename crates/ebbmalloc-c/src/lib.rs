//! `libebbmalloc.so` and `libebbmalloc.a`: the C names of `ebbmalloc-capi` in an object of their own.
//!
//! The preload object brings all it needs: system calls, thread-local storage, memory functions. It
//! has no NEEDED entry, so the same file loads into glibc and musl programs, and what it wants of
//! their libc it references weakly (`weak_libc`). In the archive (feature `archive`) the references
//! are strong (`strong_libc`): a static program has only what somebody asks for.
#![no_std]
#![cfg(target_os = "linux")]

use ebbmalloc_core::os::linux::Linux;
use ebbmalloc_core::runtime::Hooks;
use ebbmalloc_core::runtime::tls::ThreadKey;

// Linked for the names it defines.
extern crate ebbmalloc_capi as _;

#[macro_use]
mod hidden_names;
#[cfg(not(feature = "archive"))]
mod cpython;
#[cfg(not(feature = "archive"))]
mod dlopen;
#[cfg(not(feature = "archive"))]
mod late_threads;
#[cfg(not(feature = "archive"))]
mod loaded;
#[cfg(not(feature = "archive"))]
mod memory_functions;
mod program;
#[cfg(feature = "archive")]
mod strong_libc;
#[cfg(not(feature = "archive"))]
mod weak_function;
#[cfg(not(feature = "archive"))]
mod weak_libc;

#[cfg(not(feature = "archive"))]
use weak_function::weak_function;

#[cfg(feature = "archive")]
use strong_libc as libc;
#[cfg(not(feature = "archive"))]
use weak_libc as libc;

/// One key of thread-specific data: its destructor tells the core that a thread ends.
static KEY: ThreadKey = ThreadKey::new();

/// [`ebbmalloc_core::runtime::Hooks::on_thread_exit`].
///
/// # Safety
/// `destructor` is the same at every call, and may be called with `value` when the thread ends.
unsafe fn on_thread_exit(destructor: unsafe extern "C" fn(*mut u8), value: *mut u8) -> bool {
    // SAFETY: a deleted key is not in use.
    let delete = |key| unsafe { libc::key_delete(key) };
    // SAFETY: the key exists.
    let set = |key| unsafe { libc::set_specific(key, value) };
    KEY.get(|| libc::key_create(destructor), delete).is_some_and(set)
}

static KERNEL: Linux = Linux::new();

static HOOKS: Hooks = Hooks {
    register_fork: libc::register_fork,
    on_thread_exit,
    thread_value: libc::get_specific,
    environment,
    program_settings: program::settings,
    message: program::message,
    print_statistics: ebbmalloc_jemalloc::print::to_message,
    in_child: ebbmalloc_jemalloc::in_child,
    is_own_object: cfg!(not(feature = "archive")),
    errno_location: libc::errno_location,
    write_stream: libc::write_stream,
    loaded_symbol: libc::loaded_symbol,
};

/// # Safety
/// The program does not change the variable later.
unsafe fn environment(name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: `environ` is libc's list, and the program does not change the variable later (fn contract), so its text
    // stays.
    unsafe { KERNEL.environment(libc::environ(), name) }
}

/// What the core asks for; see [`Hooks`].
extern "Rust" fn hooks() -> &'static Hooks {
    &HOOKS
}

hidden_names! { "__ebbmalloc_hooks" is hooks, }

/// Runs when the process exits, after the program's own destructors.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = {
    extern "C" fn at_exit() {
        ebbmalloc_core::runtime::finish();
    }
    at_exit
};

#[cfg(not(feature = "archive"))]
hidden_names! { "rust_eh_personality" is personality, }

/// Named by the unwinding tables of unoptimised code; nothing unwinds into it.
#[cfg(not(feature = "archive"))]
extern "C" fn personality() -> ! {
    use ebbmalloc_core::os::Os;
    KERNEL.abort()
}

// `cargo clippy --all-targets` also checks this crate as a test program, which has std's.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    use ebbmalloc_core::os::Os;
    KERNEL.write_stderr(b"ebbmalloc: internal error\n");
    KERNEL.abort()
}
