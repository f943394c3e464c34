//! `ebb trim` on real processes. `services`: nothing is lost under load; `killed`: nor when `ebb` is killed;
//! `manners`: what is foreseen, refused and measured; `page_cache`: of a cgroup; `remote`: by CPython itself.
//!
//! 50 calls each, 1000 with `EBB_LONG`.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared with all test programs")]
mod harness;

mod killed;
mod manners;
mod page_cache;
mod remote;
mod rounds;
mod services;
