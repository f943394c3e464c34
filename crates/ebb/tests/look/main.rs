//! A look changes nothing: memory of each process, the cgroup's charge, huge pages, swap and soft-dirty bits are the same before
//! and after every verb that looks.
//!
//! `forked`: a tree in C, small blocks and huge pages, and gunicorn with preloaded workers, also in a cgroup with 5 % of headroom;
//! how long a look takes. `services`, with `EBB_LONG`: celery, PostgreSQL, redis while it saves.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared with all test programs")]
mod harness;

mod forked;
mod programs;
mod services;
