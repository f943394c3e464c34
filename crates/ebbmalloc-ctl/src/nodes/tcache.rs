//! `tcache.*`: explicit caches.

use crate::node::Node;

pub static NODES: &[Node] = &[];
