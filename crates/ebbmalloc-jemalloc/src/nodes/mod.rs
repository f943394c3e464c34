//! The tree: a table a group, one file each.

use crate::errno::{Errno, Result};
use crate::node::{Node, Text};
use core::ffi::CStr;

mod arena;
mod arenas;
mod config;
mod epoch;
mod experimental;
mod opt;
mod prof;
mod stats;
mod tcache;
mod thread;

/// The root's group.
pub static ROOT: &[Node] = &[
    epoch::VERSION,
    epoch::EPOCH,
    epoch::BACKGROUND_THREAD,
    epoch::MAX_BACKGROUND_THREADS,
    Node::group("thread", thread::NODES),
    Node::group("config", config::NODES),
    Node::group("opt", opt::NODES),
    Node::group("tcache", tcache::NODES),
    Node::indexed("arena", arena::holds, arena::NODES),
    Node::group("arenas", arenas::NODES),
    Node::group("prof", prof::NODES),
    Node::group("stats", stats::NODES),
    Node::group("approximate_stats", stats::APPROXIMATE),
    Node::group("experimental", experimental::NODES),
];

/// The index that stands for all arenas.
pub const ALL_ARENAS: usize = arena::ALL;
/// The index that stands for the arenas that were destroyed.
pub const DESTROYED_ARENAS: usize = arena::DESTROYED;

const fn text(text: &'static CStr) -> Text {
    text.as_ptr()
}

/// The index at `depth` of a mib, of a thing that is counted in C's `unsigned`.
fn unsigned(mib: &[usize], depth: usize) -> Result<u32> {
    let index = mib.get(depth).ok_or(Errno::ENOENT)?;
    u32::try_from(*index).map_err(|_| Errno::EFAULT)
}
