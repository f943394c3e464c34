//! What the process layer wants of a face: these tests run on the system's allocator, and the instance
//! that they control serves only what they ask it for.

use ebbmalloc_core::process::Hooks;

static HOOKS: Hooks = Hooks {
    register_fork: |_, _, _| false,
    on_thread_exit: |_, _| false,
    environment: |name| (name == b"EBB_CONF").then_some(b"stats_print_opts:Jx,narenas:2"),
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
