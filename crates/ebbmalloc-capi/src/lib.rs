//! The C and C++ names of the allocator: `malloc` and its kin, `operator new` and its kin.
//!
//! Linked into the preload object and the archive (crate `ebbmalloc-c`) and, with the feature
//! `override-c`, into Rust programs (crate `ebbmalloc`). Each function translates: it checks what C
//! says about its arguments, calls [`ebbmalloc_core::runtime`], and says the result as C does.
//!
//! What always holds: `errno` becomes ENOMEM or EINVAL on failure and is left alone by success and
//! by every kind of `free`; no request above `PTRDIFF_MAX` succeeds.
#![no_std]
// What can lose bits is checked, or argued.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]
#![cfg(target_os = "linux")]

mod aligned;
mod cxx;
mod cxx_throw;
mod errno;
mod info_xml;
mod introspection;
mod malloc;
mod resize;
mod system_calls;
mod weak;

pub use aligned::{aligned_alloc, memalign, posix_memalign, pvalloc, valloc};
// Linked for the names it defines.
extern crate ebbmalloc_jemalloc as _;
pub use introspection::{Mallinfo, Mallinfo2, mallinfo, mallinfo2, malloc_info, malloc_stats, malloc_trim, mallopt};
pub use malloc::{calloc, cfree, free, free_aligned_sized, free_sized, malloc, malloc_usable_size};
pub use resize::{realloc, reallocarray};
pub use system_calls::{madvise, prctl, setns, unshare};

/// The running kernel, for the page size and for messages.
static KERNEL: ebbmalloc_core::os::linux::Linux = ebbmalloc_core::os::linux::Linux::new();
