//! The control side of jemalloc, for ebbmalloc: the tree of names that `mallctl` reads, writes and acts
//! by, and the statistics in words and as JSON.
//!
//! Used by `ebbmalloc-capi` for the C names and by `ebbmalloc` for typed control. The tree is tables
//! ([`nodes`], one file a group); [`tree`] walks them; [`call`] holds what all nodes have in common
//! about buffers and their sizes. What a node does is a function of [`ebbmalloc_core::runtime`].
//!
//! What always holds: nothing here allocates from the heap or calls libc; a wrong name, size or
//! direction gives the errno that jemalloc gives, and changes nothing.
#![cfg_attr(not(test), no_std)]
// What can lose bits is checked, or argued.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]
#![cfg(target_os = "linux")]

pub mod call;
pub mod errno;
#[macro_use]
mod node;
pub mod nodes;
pub mod print;
pub mod tree;

pub use errno::Errno;
pub use node::{Access, Indexed, Kind, Node, Type};
pub use tree::{act, by_mib, by_name, name_to_mib, read, read_mib, write, write_mib};
