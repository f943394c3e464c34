//! Calls from outside, on real programs that check themselves. `waits`: nothing that a thread waits for, holds in its
//! registers or has below its stack is lost, also where it was stopped before; `places`: where nothing may be called nothing is.
//!
//! 50 calls each, 1000 with `EBB_LONG`.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

mod places;
mod program;
mod waits;
