//! The allocator without C or Rust names; other crates (the faces) offer it to programs.
//!
//! Folders from top to bottom; each may use only those below it:
//!
//! | folder | what it holds |
//! |---|---|
//! | [`runtime`] | the one instance: boot, settings, threads, fork, the purger thread, published counters |
//! | [`heap`] | requests: alloc, free, realloc, usable size; a tick, a trim |
//! | [`profile`] | the heap profile: live samples by stack, and their text |
//! | [`cache`] | per-thread stacks of free slots: fill, flush, claim by the purger |
//! | [`slab`] | bins and slabs: the bitmap of slots, the bitmap of resident pages, the sweep |
//! | [`arena`] | regions of address space, extents of granules, their return to the kernel |
//! | [`size`] | size classes: pure, const |
//! | [`base`] | synchronisation (core or loom), metadata memory, the corruption abort |
//! | [`os`] | system calls, which only this folder makes |
//!
//! The faces call [`runtime`]:
//!
//! ```
//! use ebbmalloc_core::runtime::Hooks;
//! use ebbmalloc_core::{runtime, size};
//!
//! /// The functions of the C library that the face offers to the core: here none.
//! #[unsafe(no_mangle)]
//! extern "Rust" fn __ebbmalloc_hooks() -> &'static Hooks {
//!     &Hooks::NONE
//! }
//!
//! let block = runtime::malloc(100);
//! assert!(!block.is_null());
//! // SAFETY: the block is live: it was allocated here and not freed.
//! let room = unsafe { runtime::usable_size(block) };
//! assert_eq!(room, size::CLASS[size::class_of(100)].size as usize);
//! // SAFETY: it is live, and not used afterwards.
//! unsafe { runtime::free(block) };
//! ```
#![cfg_attr(not(any(test, loom)), no_std)]
// Empty structures are made in constants, where `Default::default` cannot be called.
#![allow(clippy::new_without_default)]
// Casts that can lose bits are checked, or a comment says why they cannot.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]

pub mod arena;
pub mod base;
pub mod cache;
pub mod heap;
pub mod os;
pub mod profile;
#[cfg(not(loom))]
pub mod runtime;
pub mod size;
pub mod slab;
