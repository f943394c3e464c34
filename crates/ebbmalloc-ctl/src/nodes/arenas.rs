//! `arenas.*`: how many arenas there are, what they have in common, their size classes.

use crate::node::Node;
use ebbmalloc_core::process::control;
use ebbmalloc_core::size::{CLASS, CLASSES, GRANULE, QUANTUM, SMALL_MAX};

pub static NODES: &[Node] = &[
    read!("narenas", u32, |_| Ok(control::arenas() as u32)),
    read!("quantum", usize, |_| Ok(QUANTUM)),
    read!("page", usize, |_| Ok(control::page_bytes())),
    read!("hugepage", usize, |_| Ok(2 << 20)),
    read!("tcache_max", usize, |_| Ok(SMALL_MAX)),
    read!("nbins", u32, |_| Ok(CLASSES as u32)),
    read!("nhbins", u32, |_| Ok(CLASSES as u32)),
    Node::indexed("bin", |_, bin| bin < CLASSES, BIN),
];

/// Bins are counted from 0, classes from 1.
static BIN: &[Node] = &[
    read!("size", usize, |mib| Ok(CLASS[mib[2] + 1].size as usize)),
    read!("nregs", u32, |mib| Ok(CLASS[mib[2] + 1].slots)),
    read!("slab_size", usize, |mib| Ok(CLASS[mib[2] + 1].granules
        as usize
        * GRANULE)),
    read!("nshards", u32, |_| Ok(1)),
];
