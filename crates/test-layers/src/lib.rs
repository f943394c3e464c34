//! The graph of imports between the source files of a workspace, and the rules that it must keep.
//!
//! [`Workspace`] finds the crates and parses their files into [`Module`](module::Module)s. [`graph::Graph`] resolves
//! each path of each module to the file that defines the item: a re-export counts as an import of the file
//! that defines it, a `mod` declaration and a re-export of a child do not count. [`rules`] compares the graph with
//! `layers.toml`, the one table of the layers. Test code is left out.
//!
//! ```
//! let parsed = test_layers::parse::parse("use crate::slab::{Bin, index}; #[cfg(test)] mod tests {}").unwrap();
//! assert_eq!(parsed.imports[1].path, ["crate", "slab", "index"]);
//! assert!(parsed.inline.is_empty());
//! ```

pub mod graph;
pub mod module;
pub mod parse;
pub mod rules;
mod workspace;

pub use workspace::{Crate, Workspace};
