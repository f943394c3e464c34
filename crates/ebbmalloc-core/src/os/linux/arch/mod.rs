//! What depends on the architecture: system call numbers, the call itself, raw `clone`.
//!
//! One file an architecture, all of the same shape; chosen here and nowhere else.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
