//! What `ebb why` and `ebb trim` advise, tried: a remedy must return at least half of the bytes that it is
//! advised for, on a process in the state in which it is advised.
//!
//! The states are those of `tests/fixtures/advice/states.c`. Tests that build for long or need a JDK, Go or
//! pyarrow are behind `EBB_LONG`.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

#[path = "../run/harness.rs"]
#[allow(dead_code, reason = "shared with the tests of ebb run, which use more of it")]
mod harness;
#[path = "../why/subjects.rs"]
#[allow(dead_code, reason = "shared with the tests of ebb why, which use more of it")]
mod subjects;

mod native;
mod process;
mod runtimes;
