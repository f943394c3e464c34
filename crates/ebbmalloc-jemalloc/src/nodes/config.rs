//! `config.*`: what the build can do.

use crate::node::{Node, Text};

pub static NODES: &[Node] = &[
    read!("cache_oblivious", bool, |_| Ok(false)),
    read!("debug", bool, |_| Ok(cfg!(debug_assertions))),
    read!("fill", bool, |_| Ok(true)),
    read!("lazy_lock", bool, |_| Ok(false)),
    read!("malloc_conf", Text, |_| Ok(crate::node::text(c""))),
    read!("opt_safety_checks", bool, |_| Ok(true)),
    read!("prof", bool, |_| Ok(true)),
    read!("prof_libgcc", bool, |_| Ok(false)),
    read!("prof_libunwind", bool, |_| Ok(false)),
    read!("prof_frameptr", bool, |_| Ok(true)),
    read!("stats", bool, |_| Ok(true)),
    read!("utrace", bool, |_| Ok(false)),
    read!("xmalloc", bool, |_| Ok(true)),
];
