//! The preload suite: the built libebbmalloc.so under real programs and under small C programs,
//! one for each case that is known to kill allocators.
//!
//! Run by `cargo test -p ebbmalloc-c --test preload`. Every test starts processes of its own and
//! proves that the allocator was in charge in them. `EBB_TEST_PRELOAD=FILE` puts another library
//! in its place (tests of what only ebbmalloc does then fail), `EBB_LONG=1` takes the long counts.
//! A program that is not installed skips its test (`test_needs`).

#![cfg(target_os = "linux")]

mod harness;

mod cases;
mod cgroup;
mod delay;
mod inspection;
mod loading;
mod misuse;
mod profile;
mod programs;
mod settings;
mod startup;
