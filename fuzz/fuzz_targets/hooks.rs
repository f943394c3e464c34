//! What the process layer wants from a C library; no target uses an instance, the linker asks for it.

use ebbmalloc_core::runtime::Hooks;

static HOOKS: Hooks = Hooks::NONE;

#[unsafe(no_mangle)]
extern "Rust" fn __ebbmalloc_hooks() -> &'static Hooks {
    &HOOKS
}
