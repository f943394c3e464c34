//! `opt.*`: the settings in force.

use crate::node::Node;

pub static NODES: &[Node] = &[];
