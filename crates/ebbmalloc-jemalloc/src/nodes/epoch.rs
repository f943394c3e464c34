//! The leaves of the root: version, epoch, the purger's thread.

use crate::errno::Errno;
use crate::node::{Access, Node, Text};
use ebbmalloc_core::runtime::{control, figures};

/// `version`: the jemalloc whose interface this is, and who gives it.
const NAME: &core::ffi::CStr = c"5.3.0-0-ebbmalloc-0.1.0";

pub const VERSION: Node = read!("version", Text, |_| Ok(super::text(NAME)));

/// A write takes the statistics anew, whatever is written; what is read is how often that was done.
pub const EPOCH: Node = Node::leaf::<u64>("epoch", Access::ReadWrite, |call| {
    if call.take::<u64>()?.is_some() {
        figures::refresh();
    }
    call.give(figures::epoch())
});

pub const BACKGROUND_THREAD: Node = read_write!(
    "background_thread",
    bool,
    |_| Ok(control::may_start_thread()),
    |_, on| {
        control::let_start_thread(on);
        Ok(())
    }
);

/// One thread is all there is: the bound is kept for who asks.
pub const MAX_BACKGROUND_THREADS: Node = read_write!(
    "max_background_threads",
    usize,
    |_| Ok(control::most_threads()),
    |_, most| if control::let_have_threads(most) {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
);
