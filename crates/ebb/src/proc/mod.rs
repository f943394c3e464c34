//! Reads processes and program files from outside, and never changes them.
//!
//! - [`elf`]: what kind of program or library a file is.
//! - [`tree`]: a process and its descendants, and what they use.
//! - [`charge`]: which file a process takes its `malloc` from.
//!
//! What cannot be read is `None` or an error with its reason, never 0.

pub mod charge;
pub mod elf;
pub mod tree;

pub use charge::{MallocSource, Unreadable, malloc_source, maps_contain};
pub use elf::{Elf, Libc, libc_of};
pub use tree::{Sample, Tree};
