//! ebbmalloc as a Rust program's allocator: resident memory follows the live heap by itself.
//!
//! ```
//! use ebbmalloc::Ebbmalloc;
//!
//! #[global_allocator]
//! static GLOBAL: Ebbmalloc = Ebbmalloc;
//!
//! fn main() {
//!     let blocks: Vec<_> = (0..1000).map(|size| vec![0_u8; size]).collect();
//!     // `None` where requests go to the system's allocator.
//!     let held = GLOBAL.stats().map(|stats| stats.live_bytes);
//!     assert!(held.is_none_or(|bytes| bytes > 499_500));
//!     drop(blocks);
//!     GLOBAL.trim();
//! }
//! ```
//!
//! With the feature `override-c`, C and C++ dependencies of the program allocate here too. On systems
//! other than Linux all requests go to [`std::alloc::System`].
// What can lose bits is checked, or argued.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]

pub use ebb_stats::{Snapshot, mechanism};

pub mod control;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;
pub mod profile;

/// The allocator, for `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ebbmalloc;

impl Ebbmalloc {
    /// The figures of the whole heap; `None` on systems where ebbmalloc passes requests through.
    pub fn stats(&self) -> Option<Snapshot> {
        #[cfg(target_os = "linux")]
        return Some(ebbmalloc_core::runtime::stats());
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Returns all that is free to the system, other threads' caches included. True if any memory
    /// was returned. Not needed for that to happen: it is done within about a second anyway.
    pub fn trim(&self) -> bool {
        #[cfg(target_os = "linux")]
        return ebbmalloc_core::runtime::trim();
        #[cfg(not(target_os = "linux"))]
        false
    }
}
