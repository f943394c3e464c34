//! The jemalloc suite: programs that are linked to libjemalloc.so.2 and written by jemalloc's manual,
//! run on jemalloc itself and, the same executable, on an installation of ebbmalloc under its name.
//!
//! Run by `cargo test -p ebbmalloc-c --test jemalloc`. What fails on jemalloc is a mistake of the
//! program; `EBB_TEST_JEMALLOC=FILE` takes another libjemalloc.so.2 than the system's.

#![cfg(target_os = "linux")]

#[allow(dead_code, unused_imports)]
#[path = "../preload/harness/mod.rs"]
mod harness;

mod cases;
mod installed;
mod programs;
