//! Slabs and the bins that hold them: the bitmap of slots, the bitmaps of pages, the sweep that
//! returns idle pages from inside live slabs.

pub mod bin;
mod free_pages;
mod generation;
mod growth;
pub mod lend;
pub mod shape;
pub mod slab;
pub mod slabs;
pub mod sweep;
#[cfg(any(test, loom))]
mod validate;

#[cfg(all(test, loom))]
pub(crate) mod loom_tests;
