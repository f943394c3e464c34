//! `ebb compare` on real services and processes, and `ebb burst`.
//!
//! The service of `fixtures/bursts` keeps every fiftieth buffer of a burst, so glibc holds the pages
//! and a jemalloc without delay does not. Needs python3 and libjemalloc.so.2.

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared by all test programs")]
mod harness;

mod again;
mod deploys;
mod files;
mod image;
mod limits;
mod live;
mod page;

mod sketch;
mod sure;
mod trials;
mod workload;

const MB: f64 = 1e6;
