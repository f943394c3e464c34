//! `stats.*`: the figures as of the last write to `epoch`.

use crate::node::Node;
use ebbmalloc_core::process;

pub static NODES: &[Node] = &[read!("allocated", usize, |_| Ok(
    process::stats().live_bytes as usize
))];

pub static APPROXIMATE: &[Node] = &[];
