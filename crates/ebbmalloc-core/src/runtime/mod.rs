//! The one instance of the allocator in a process, and everything that ties it to that process.
//!
//! The faces (C and Rust) call the functions of this module and nothing else.

mod access;
mod attach;
mod boot;
pub mod conf;
pub mod control;
pub mod decay;
mod early;
mod entry;
mod exit;
pub mod face;
pub mod figures;
mod fork;
mod growth;
mod hooks;
mod huge_pages;
pub mod in_force;
mod instance;
mod interval;
mod lookup;
mod mechanisms;
mod observed;
mod observer;
pub mod profile;
mod publish;
mod purger;
mod sandbox;
mod settings;
mod state;
mod stats;
mod thread;
pub mod thread_control;
pub mod tls;

pub use entry::{
    free, malloc, malloc_from_cache, malloc_rest, malloc_zeroed, malloc_zeroed_from_cache,
    memalign, memalign_from_cache, realloc, stays_in_slot, trim, usable_size,
};
pub use exit::finish;
pub use fork::without_purger;
pub use hooks::Hooks;
pub use huge_pages::wants_huge_pages;
pub use sandbox::entering_sandbox;
pub use stats::{stats, write_stats};
