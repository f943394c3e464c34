//! The one instance of the allocator in a process, and everything that ties it to that process.
//!
//! The faces (C and Rust) call the functions of this module and nothing else. The files below are in groups, from
//! bottom to top. No file uses one above it, and no two use each other: `crates/test-layers`, which has their order.

// The heap, and what needs no thread.
mod checks;
pub mod conf;
mod early;
mod hooks;
pub mod in_force;
mod instance;
mod lookup;
mod mechanisms;
pub mod tls;

// What a thread is to the heap.
mod observer;
mod profile_settings;
mod sampler;
mod state;
mod thread;

// What follows requests now and then: the counters, the profile, the purger; and fork, which stops that.
pub mod decay;
mod fork;
mod growth;
mod interval;
mod profile;
mod publish;
mod purger;
mod report_file;
mod sandbox;

// The slow path, which boots the process and attaches threads.
mod access;
mod attach;
mod settings;

// Requests, and the end.
mod entry;
mod guards;
mod observed;
mod stats;
pub mod strict;

// What jemalloc's face and the control side call.
pub mod control;
pub mod face;
pub mod profile_control;
pub mod thread_control;

pub use checks::report::Freed;
pub use checks::tag::Maker;
pub use control::wants_huge_pages;
pub use entry::{
    By, Said, Sized, free, free_as, malloc, malloc_from_cache, malloc_slow, malloc_slow_by, malloc_zeroed,
    malloc_zeroed_from_cache, memalign, memalign_by, memalign_from_cache, realloc, stays_in_slot, trim, usable_size,
};
pub use fork::without_purger;
pub use hooks::Hooks;
pub use sandbox::entering_sandbox;
pub use stats::{finish, stats, write_stats};
