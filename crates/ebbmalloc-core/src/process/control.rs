//! What the control side (`ebbmalloc-ctl`) asks and changes while the process runs.

use super::conf::Source;
use super::instance::HEAP;
use super::{in_force, publish, purger};
use crate::os::Os;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

/// How often the statistics were taken. Relaxed: a number of its own.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// How often the statistics were taken.
pub fn epoch() -> u64 {
    EPOCH.load(Ordering::Relaxed)
}

/// Takes the statistics anew.
pub fn refresh() {
    publish::stats();
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// Whether the purger may have a thread.
pub fn may_start_thread() -> bool {
    purger::has_thread()
}

/// Lets the purger have a thread, or ends the one that it has and lets slow paths do its work.
pub fn let_start_thread(on: bool) {
    purger::set_thread(on);
}

/// Arenas: each stands for a shard of the bins.
pub fn arenas() -> usize {
    HEAP.shards()
}

/// Size of a page.
pub fn page_bytes() -> usize {
    HEAP.os.page_bytes()
}

/// Arenas that the process has without having asked for them.
pub fn automatic_arenas() -> usize {
    HEAP.shards()
}

/// The longest that memory stays idle where no setting bounds it, in milliseconds; -1 for ever.
pub fn own_decay_ms() -> isize {
    purger::idle_time_ms().map_or(-1, |ms| ms as isize)
}

/// The text that settings were read from, if there was one.
pub fn settings_text(source: Source) -> Option<&'static CStr> {
    in_force::source(source)
}
