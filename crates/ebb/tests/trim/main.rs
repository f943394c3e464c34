//! `ebb trim` on real processes. `services`: nothing is lost under load; `killed`: nor when `ebb` is killed;
//! `manners`: what is foreseen, refused and measured; `page_cache`: of a cgroup; `remote`: by CPython itself.
//!
//! 50 calls each, 1000 with `EBB_LONG`.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

#[path = "../run/harness.rs"]
#[allow(dead_code, reason = "shared with the tests of ebb run, which use more of it")]
mod harness;
#[path = "../why/subjects.rs"]
#[allow(dead_code, reason = "shared with the tests of ebb why, which use more of it")]
mod subjects;

mod killed;
mod manners;
mod page_cache;
mod remote;
mod rounds;
mod services;
