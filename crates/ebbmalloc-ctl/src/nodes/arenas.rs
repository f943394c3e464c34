//! `arenas.*`: how many arenas there are, what they have in common, their size classes.

use crate::node::Node;
use ebbmalloc_core::process::conf::Id;
use ebbmalloc_core::process::{control, in_force};
pub use ebbmalloc_core::size::large::LARGE_CLASSES;
use ebbmalloc_core::size::large::large_class_size;
use ebbmalloc_core::size::{CLASS, CLASSES, GRANULE, QUANTUM};

pub static NODES: &[Node] = &[
    read!("narenas", u32, |_| Ok(control::arenas() as u32)),
    read!("dirty_decay_ms", isize, |_| Ok(control::own_decay_ms())),
    read!("muzzy_decay_ms", isize, |_| Ok(0)),
    read!("quantum", usize, |_| Ok(QUANTUM)),
    read!("page", usize, |_| Ok(control::page_bytes())),
    read!("hugepage", usize, |_| Ok(2 << 20)),
    read!("tcache_max", usize, |_| Ok(
        in_force::number(Id::TcacheMax) as usize
    )),
    read!("nbins", u32, |_| Ok(CLASSES as u32)),
    read!("nhbins", u32, |_| Ok(CLASSES as u32)),
    Node::indexed("bin", |_, bin| bin < CLASSES, BIN),
    read!("nlextents", u32, |_| Ok(LARGE_CLASSES as u32)),
    Node::indexed("lextent", |_, class| class < LARGE_CLASSES, LEXTENT),
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

/// Large blocks are whole pages; these are the classes that they are counted under.
static LEXTENT: &[Node] = &[read!("size", usize, |mib| Ok(large_class_size(mib[2])))];
