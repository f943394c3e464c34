//! A heap profile as text, as a page, and in the formats of other tools. Pure.
//!
//! Used by `ebb profile` and `ebb diff`. Figures are estimates from samples; `±` is their standard deviation.

mod changes;
mod formats;
mod functions;
mod page;
mod shown;
#[cfg(test)]
mod tests;
mod text;
mod tree;

pub use changes::{Change, WithStacks, changes, render_changes};
pub use formats::{folded, json, speedscope};
pub use page::page;
pub use shown::Shown;
pub use text::{render, tree};
