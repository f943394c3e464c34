//! The tree: a table a group, one file each.

use crate::node::Node;

mod arena;
mod arenas;
mod epoch;
mod experimental;
mod opt;
mod prof;
mod stats;
mod thread;

/// The root's group.
pub static ROOT: &[Node] = &[
    epoch::VERSION,
    epoch::EPOCH,
    epoch::BACKGROUND_THREAD,
    epoch::MAX_BACKGROUND_THREADS,
    Node::group("thread", thread::NODES),
    Node::group("config", epoch::CONFIG),
    Node::group("opt", opt::NODES),
    Node::group("tcache", thread::CACHES),
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
