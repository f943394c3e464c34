//! `stats.mutexes.*` and their like: the names are there and read as 0. Locks are not timed here; what
//! they guard is a few hundred instructions, and a clock would cost as much.

use crate::node::Node;

/// What is counted of a mutex.
pub static COUNTERS: &[Node] = &[
    read!("num_ops", u64, |_| Ok(0)),
    read!("num_wait", u64, |_| Ok(0)),
    read!("num_spin_acq", u64, |_| Ok(0)),
    read!("num_owner_switch", u64, |_| Ok(0)),
    read!("total_wait_time", u64, |_| Ok(0)),
    read!("max_wait_time", u64, |_| Ok(0)),
    read!("max_num_thds", u32, |_| Ok(0)),
];

/// The mutexes that jemalloc has of a process.
pub static GLOBAL: &[Node] = &[
    Node::group("background_thread", COUNTERS),
    Node::group("max_per_bg_thd", COUNTERS),
    Node::group("ctl", COUNTERS),
    Node::group("prof", COUNTERS),
    Node::group("prof_thds_data", COUNTERS),
    Node::group("prof_dump", COUNTERS),
    Node::group("prof_recent_alloc", COUNTERS),
    Node::group("prof_recent_dump", COUNTERS),
    Node::group("prof_stats", COUNTERS),
    act!("reset", |_| Ok(())),
];

/// The mutexes that jemalloc has of an arena.
pub static ARENA: &[Node] = &[
    Node::group("large", COUNTERS),
    Node::group("extent_avail", COUNTERS),
    Node::group("extents_dirty", COUNTERS),
    Node::group("extents_muzzy", COUNTERS),
    Node::group("extents_retained", COUNTERS),
    Node::group("decay_dirty", COUNTERS),
    Node::group("decay_muzzy", COUNTERS),
    Node::group("base", COUNTERS),
    Node::group("tcache_list", COUNTERS),
];
