//! The leaves of the root: version, epoch, the purger's thread; and `config.*`.

use crate::errno::Errno;
use crate::figures;
use crate::node::{Access, Node, Text};
use core::sync::atomic::{AtomicUsize, Ordering};
use ebbmalloc_core::base::exact::usize_of;
use ebbmalloc_core::runtime::conf::Id;
use ebbmalloc_core::runtime::{face, in_force};

/// `version`: the jemalloc whose interface this is, and who gives it.
const NAME: &core::ffi::CStr = c"5.3.0-0-ebbmalloc-0.1.0";

pub const VERSION: Node = read!("version", Text, |_| Ok(crate::node::text(NAME)));

/// A write takes the statistics anew, whatever is written; what is read is how often that was done.
pub const EPOCH: Node = Node::leaf::<u64>("epoch", Access::ReadWrite, |call| {
    if call.take::<u64>()?.is_some() {
        figures::refresh();
    }
    call.give(figures::epoch())
});

pub const BACKGROUND_THREAD: Node =
    read_write!("background_thread", bool, |_| Ok(face::may_start_thread()), |_, on| {
        face::let_start_thread(on);
        Ok(())
    });

/// One thread is all there is: the bound is kept for later reads.
pub const MAX_BACKGROUND_THREADS: Node =
    read_write!("max_background_threads", usize, |_| Ok(most_threads()), |_, most| {
        if let_have_threads(most) { Ok(()) } else { Err(Errno::EINVAL) }
    });

/// The bound that was set on such threads since the start; 0 for none. Relaxed: a figure.
static MOST_THREADS: AtomicUsize = AtomicUsize::new(0);

/// How many threads there may be. There is never more than one.
fn most_threads() -> usize {
    match MOST_THREADS.load(Ordering::Relaxed) {
        0 => usize_of(in_force::number(Id::MaxBackgroundThreads)),
        most => most,
    }
}

/// Bounds them, to no more than the settings do. False for a bound that is none.
fn let_have_threads(most: usize) -> bool {
    let allowed = (1..=usize_of(in_force::number(Id::MaxBackgroundThreads))).contains(&most);
    if allowed {
        MOST_THREADS.store(most, Ordering::Relaxed);
    }
    allowed
}

/// `config.*`: what the build can do.
pub static CONFIG: &[Node] = &[
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
