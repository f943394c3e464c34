//! jemalloc's interface for ebbmalloc: requests with flags (`mallocx` and its kin), arenas and caches by index, the tree
//! of names that `mallctl` reads, writes and acts by, and the statistics in words and as JSON.
//!
//! Made of the public hooks of the core, [`ebbmalloc_core::runtime`] and its module `face`; the core knows nothing of
//! this crate. `ebbmalloc-capi` links it with the C names (`c_names`), `ebbmalloc` for typed control. The tree is
//! tables ([`nodes`], one file per group); [`tree`] walks them; [`call`] holds what all nodes have in common about
//! buffers and their sizes.
//!
//! ```
//! # use ebbmalloc_core::runtime::Hooks;
//! # #[unsafe(no_mangle)]
//! # extern "Rust" fn __ebbmalloc_hooks() -> &'static Hooks {
//! #     &Hooks::NONE
//! # }
//! use ebbmalloc_jemalloc::blocks::{Choice, allocate_with, free_with};
//! use ebbmalloc_jemalloc::{read, write};
//!
//! // As mallocx(100, MALLOCX_ALIGN(64)) and dallocx do.
//! let choice = Choice::from_flags(6);
//! let block = allocate_with(100, &choice);
//! assert!(block.addr().is_multiple_of(64));
//! // SAFETY: allocated above, and freed once.
//! unsafe { free_with(block, &choice) };
//!
//! // As mallctl does. A write to `epoch` takes the figures.
//! write(b"epoch", 1u64).unwrap();
//! assert!(read::<usize>(b"stats.resident").unwrap() > 0);
//! assert!(read::<usize>(b"no.such.name").is_err());
//! ```
//!
//! What always holds: nothing here allocates from the heap or calls libc; a wrong name, size or
//! direction gives the errno that jemalloc gives, and changes nothing.
#![cfg_attr(not(test), no_std)]
// What can lose bits is checked, or argued.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]
#![cfg(target_os = "linux")]

mod arenas;
pub mod blocks;
#[cfg(feature = "c-names")]
pub mod c_names;
pub mod call;
mod default_hooks;
pub mod errno;
mod figures;
#[macro_use]
mod node;
pub mod nodes;
pub mod print;
pub mod tree;

pub use errno::Errno;
pub use node::{Access, Indexed, Kind, Node, Type};
pub use tree::{act, by_mib, by_name, name_to_mib, read, read_mib, write, write_mib};

/// For the hook of the core of that name.
///
/// # Safety
/// The process has no other thread.
pub unsafe fn in_child() {
    // SAFETY: the process has one thread, by the fn contract.
    unsafe { figures::reset() }
}
