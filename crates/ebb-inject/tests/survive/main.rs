//! Calls from outside, on real programs that check themselves. `waits`: nothing that a thread waits for, holds in its
//! registers or has below its stack is lost; `places`: where nothing may be called nothing is; `resumed`: waits that were
//! stopped before.
//!
//! 50 calls each, 1000 with `EBB_LONG`.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

mod places;
mod program;
mod resumed;
mod waits;
