//! The end of the process.

use super::instance::HEAP;
use super::profile::dumps;
use super::{publish, thread};

/// At the end of the process (the face's destructor): prints what was asked for, and looks for wrong frees that no flush
/// has met.
pub fn finish() {
    publish::at_exit();
    dumps::at_exit();
    // In the child of a fork without handlers locks may be held by threads that it does not have, and a slow path must
    // come first.
    if HEAP.os.is_alive_here()
        && let Some(own) = thread::own_cache()
    {
        HEAP.check_cache(own);
    }
}
