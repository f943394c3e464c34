//! Per-thread caches of free slots, and how the purger takes them over.

pub mod bins;
pub mod cache;
pub mod drain;
pub mod explicit;
pub mod explicit_table;
pub mod fast;
pub mod ration;
pub mod registry;
pub mod shard;
pub mod stack;
mod stack_memory;
pub mod transfer;

#[cfg(all(test, target_os = "linux", not(loom)))]
mod stress_tests;
