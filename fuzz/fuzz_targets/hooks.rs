//! What the process layer wants from a C library; no target uses an instance, the linker asks for it.

use ebbmalloc_core::process::Hooks;

static HOOKS: Hooks = Hooks {
    register_fork: |_, _, _| false,
    on_thread_exit: |_, _| false,
    environment: |_| None,
    program_settings: |_| None,
    message: |_| false,
    print_statistics: |_| (),
    errno_location: || core::ptr::null_mut(),
    write_stream: |_, _| false,
    loaded_symbol: |_, _| core::ptr::null(),
    is_own_object: true,
};

#[unsafe(no_mangle)]
extern "Rust" fn __ebbmalloc_hooks() -> &'static Hooks {
    &HOOKS
}
