//! The allocator behind ebbmalloc, without any C or Rust face.
//!
//! Folders from top to bottom; each may use only those below it:
//!
//! | folder | what it holds |
//! |---|---|
//! | [`runtime`] | the one instance: boot, settings, threads, fork, the purger thread, published counters |
//! | [`heap`] | what a request meets: alloc, free, realloc, usable size |
//! | [`profile`] | the heap profile: live samples by stack, and their text |
//! | [`cache`] | per-thread stacks of free slots: fill, flush, claim by the purger |
//! | [`slab`] | bins and slabs: the bitmap of slots, the bitmap of resident pages, the sweep |
//! | [`arena`] | regions of address space, extents of granules, their return to the kernel |
//! | [`size`] | size classes: pure, const |
//! | [`base`] | synchronisation (core or loom), metadata memory, the corruption abort |
//! | [`os`] | the only door to the kernel |
#![cfg_attr(not(any(test, loom)), no_std)]
// What can lose bits is checked, or argued.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

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
