//! The control tree as a program meets it, within one process. These tests run on the system's allocator, and the instance
//! that they control serves only what they ask it for.

mod figures;
mod misuse;

use ebbmalloc_core::runtime::Hooks;

static HOOKS: Hooks =
    Hooks { environment: |name| (name == b"EBB_CONF").then_some(b"stats_print_opts:Jx,narenas:2"), ..Hooks::NONE };

#[unsafe(no_mangle)]
extern "Rust" fn __ebbmalloc_hooks() -> &'static Hooks {
    &HOOKS
}
