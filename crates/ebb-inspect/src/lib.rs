//! Reads the memory of another process, and the heaps in it, without stopping or changing it.
//!
//! The pieces, each of which uses only those below it:
//!
//! - [`cpython`]: CPython: its interpreters, its garbage collector, its arenas.
//! - [`ebbmalloc`]: ebbmalloc's slabs, extents and caches, by the layout that it publishes with its counters.
//! - [`glibc`]: the heap of the GNU C library: its arenas, walked chunk by chunk.
//! - [`jemalloc`]: jemalloc's extents, threads' caches and settings in force.
//! - [`musl`]: musl's groups of slots.
//! - [`mimalloc`]: mimalloc's segments and options.
//! - [`tcmalloc`]: gperftools' spans and caches.
//! - [`heap`]: the [`Heap`] that each of these readers returns.
//! - [`breakdown`]: its [`Breakdown`], whose lines add up.
//! - `page_map`: where the page map of an allocator is that has one of two levels.
//! - `space`: memory and mappings together.
//! - [`image`]: a mapped program or library: its data, its variables, its texts.
//! - [`core_file`]: a core dump, as it were a process.
//! - [`target`]: a process as it is read: its mappings and its memory.
//! - [`memory`]: pages and words of a process, present ones only; the real thing and a made-up one.
//! - [`permission`]: why a process is closed to us, and the one thing that opens it.
//! - [`exact`]: conversions of numbers that keep their value.
//!
//! What always holds: whether a page is there is asked before it is read, because reading an absent page
//! would map it and reading a swapped one would bring it in; own memory is bounded whatever
//! the target's size; what the target's memory says is never trusted, so it costs neither a panic nor
//! an endless loop; a figure that cannot be had is an error or `None`, never 0.
//!
//! ```
//! # #[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use std::io::Read;
//! # use std::process::{Command, Stdio};
//! use ebb_inspect::{Target, glibc};
//!
//! let mut shell = Command::new("sh")
//!     .args(["-c", "echo started; read end"])
//!     .stdin(Stdio::piped())
//!     .stdout(Stdio::piped())
//!     .spawn()?;
//! # shell.stdout.as_mut().unwrap().read_exact(&mut [0; 8])?;
//! let target = Target::open(shell.id().try_into()?)?;
//! let heap = glibc::read(&target)?;
//! println!("{}: {} bytes in use", heap.reader, heap.breakdown.live.bytes);
//! assert!(heap.breakdown.live.bytes <= heap.breakdown.system.bytes);
//!
//! drop(shell.stdin.take());
//! shell.wait()?;
//! # Ok(())
//! # }
//! # #[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
//! # fn main() {}
//! ```
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]

pub mod breakdown;
pub mod core_file;
pub mod cpython;
pub mod ebbmalloc;
pub mod exact;
pub mod file;
pub mod glibc;
pub mod heap;
pub mod image;
pub mod jemalloc;
pub mod memory;
pub mod mimalloc;
pub mod musl;
mod page_map;
pub mod permission;
mod space;
pub mod target;
pub mod tcmalloc;

/// How long a look at one process may take. A heap of ten million chunks takes 2 s of processor time where all of them lie in
/// fastbins in random order, 0.4 s where none does; the rest is for a machine that is busy with other things.
pub const LOOK_WITHIN: std::time::Duration = std::time::Duration::from_secs(15);

/// The kernel holds the lock of a target's mappings while it walks one of them; of more resident memory than this that may take 10 ms.
pub const LONG_WALK_BYTES: u64 = 512 << 20;

/// The newest layout of each allocator that is read, and CPython's. `ebb --version` prints it.
pub const NEWEST: [(&str, &str); 6] = [
    (ebb_allocators::Allocator::Glibc.name(), "2.43"),
    (ebb_allocators::Allocator::Musl.name(), "1.2 (mallocng)"),
    (ebb_allocators::Allocator::Jemalloc.name(), "5.3.1"),
    (ebb_allocators::Allocator::Mimalloc.name(), "3.6.0"),
    ("tcmalloc (gperftools)", "2.10"),
    ("CPython", "3.14"),
];

pub use breakdown::{Breakdown, Line};
pub use heap::{Class, Glibc, Heap, HugePages, Quality, Thresholds, Trim, Unsupported};
pub use memory::{Memory, Page, Unreadable};
pub use permission::Gate;
pub use target::{Mapping, Target};
