//! `prof.*` and `thread.prof.*`: heap profiling.

use crate::node::Node;

pub static NODES: &[Node] = &[];

pub static THREAD: &[Node] = &[];
