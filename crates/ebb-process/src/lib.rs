//! A process and its cgroup, seen from outside. Nothing here changes a process but [`profile`], which asks ebbmalloc for samples.
//!
//! Used by the command line, diagnoses, trials and the rules of `ebb check`. It knows no verdict. What cannot be read
//! is `None` or an error with its reason, never 0.
//!
//! - [`snapshot`]: the facts of one look, as plain data.
//! - [`elf`], [`inside`], [`program`], [`charge`]: program files, and which of them serves `malloc`.
//! - [`library`], [`carried`]: an allocator's library that fits a program; the one that this program carries. [`private`]: where it is cached.
//! - [`root`], [`environ`], [`inherited`]: how a process sees files and variables.
//! - [`look`], [`patience`]: limits of a look, and the end of waiting.
//! - [`tree`], [`target`], [`follow`]: what a user names, as processes, over restarts.
//! - [`record`], [`recording`], [`whole_file`]: one line of JSON per look, days of them in a folder; a file whole or not at all.
//! - [`mappings`], `memory`, [`runtime`], [`pool`], [`instruments`]: mappings by kind, and what runs in them.
//! - [`counters`], [`heap`], [`hidden`], [`python`], [`jvm`], [`v8`]: what its allocators, its CPython, its Java and its V8 hold.
//! - [`profile`], [`symbols`], [`pprof`]: the heap profile of an ebbmalloc, with names, and its file.
//! - [`cgroup`], [`limited_cgroup`], [`machine`]: its cgroup, cgroups with limits, the whole machine.

pub mod borrowed;
pub mod carried;
pub mod cgroup;
pub mod charge;
pub mod counters;
pub mod elf;
pub mod environ;
#[cfg(any(test, feature = "example"))]
pub mod example;
pub mod follow;
pub mod heap;
pub mod hidden;
pub mod inherited;
pub mod inside;
pub mod instruments;
pub mod jvm;
pub mod library;
pub mod limited_cgroup;
pub mod look;
pub mod machine;
pub mod mappings;
mod memory;
pub mod patience;
pub mod pool;
pub mod pprof;
pub mod private;
pub mod profile;
pub mod program;
pub mod python;
pub mod record;
pub mod recording;
pub mod root;
pub mod runtime;
pub mod snapshot;
pub mod symbols;
pub mod target;
pub mod tree;
pub mod v8;
pub mod whole_file;

pub use charge::{MallocSource, Unreadable, malloc_source, maps_contain, started_malloc_source};
pub use counters::Counters;
pub use elf::{Elf, Libc, libc_of};
pub use look::NotRead;
pub use program::Program;
pub use tree::{Sample, Tree, identity};
