//! `experimental.*`.

use crate::node::Node;

pub static NODES: &[Node] = &[];
