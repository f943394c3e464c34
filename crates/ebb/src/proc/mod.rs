//! Reads processes and program files from outside, and never changes them.
//!
//! - [`elf`]: what kind of program or library a file is.
//! - [`tree`]: a process and its descendants, and what they use.
//! - [`program`]: what a command comes to, and what would keep a library from being preloaded.
//! - [`inherited`]: what a program that we start must find as our parent left it.
//! - [`root`]: the file system as a process sees it.
//! - [`environ`]: the environment that a process was started with, and the one it has now.
//! - [`inside`]: allocators that are compiled into a program or a library.
//! - [`hidden`]: those in mapped files that are not in charge of `malloc`.
//! - [`instruments`]: profilers and checks that are switched on in a process.
//! - [`charge`]: which file a process takes its `malloc` from.
//! - [`mappings`]: its mappings by kind.
//! - `memory`: bytes of it by their address, but for what is in swap.
//! - [`machine`]: what the whole machine does.
//! - [`cgroup`]: the memory cgroup that it is in.
//! - [`enclosure`]: cgroups with limits, made for a trial.
//! - [`look`]: how long that may take.
//! - [`runtime`]: the language runtime in it.
//! - [`heap`]: what its allocator holds.
//! - [`not_read`]: why something of it was not read, and what opens it.
//! - [`python`]: what its CPython holds.
//! - [`target`]: what a user names, as processes.
//! - [`follow`]: a target over its restarts.
//! - [`counters`]: what a process on ebbmalloc publishes about its heap.
//!
//! What cannot be read is `None` or an error with its reason, never 0.

pub mod cgroup;
pub mod charge;
pub mod counters;
pub mod elf;
pub mod enclosure;
pub mod environ;
pub mod follow;
pub mod heap;
pub mod hidden;
pub mod inherited;
pub mod inside;
pub mod instruments;
pub mod look;
pub mod machine;
pub mod mappings;
mod memory;
pub mod not_read;
pub mod pool;
pub mod program;
pub mod python;
pub mod root;
pub mod runtime;
pub mod target;
pub mod tree;

pub use charge::{MallocSource, Unreadable, malloc_source, maps_contain, started_malloc_source};
pub use counters::Counters;
pub use elf::{Elf, Libc, libc_of};
pub use not_read::NotRead;
pub use program::Program;
pub use tree::{Sample, Tree, identity};
