//! Real programs under the preload, each at work that it is used for, with the proof that the
//! allocator was in charge in it.

mod python;
mod python_embedders;
mod pythons;
mod servers;
mod tools;

use std::path::PathBuf;

use crate::harness::Scratch;

/// A script of `scripts.cases`, in the folder. `== NAME ==` is before each.
fn script(scratch: &Scratch, name: &str) -> PathBuf {
    let mut all = concat!("\n", include_str!("scripts.cases")).split("\n== ");
    let found = all.find_map(|it| it.strip_prefix(name)?.strip_prefix(" ==\n"));
    scratch.file(name, &format!("{}\n", found.expect("a script")))
}
