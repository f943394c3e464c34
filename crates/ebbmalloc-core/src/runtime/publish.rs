//! The published counters: a page that `ebb` reads from outside, and a file with the same contents.

use super::conf::keys::STATS_FILE;
use super::instance::HEAP;
use super::{conf, in_force, mechanisms};
use crate::base::corrupt::Line;
use crate::heap::Heap;
use crate::heap::statistics::Statistics;
use crate::os::Os;
use crate::os::linux::Linux;
use crate::size::CLASS;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use ebb_stats::layout::Layout;
use ebb_stats::note::Note;
use ebb_stats::{Page, Snapshot};

/// The page that `ebb` reads from outside; nothing inside needs it, so an attribute makes the linker keep it.
#[used]
static PAGE: Page = Page::new();
/// Where `ebb` finds the heap itself, kept like the page.
#[used]
static LAYOUT: Layout = Layout::new((&raw const HEAP).cast(), (&raw const CLASS).cast(), Heap::<Linux>::OFFSETS);
/// The version, for those who look at the file.
#[used]
#[unsafe(link_section = ".note.ebbmalloc")]
static NOTE: Note = Note::new(env!("CARGO_PKG_VERSION"));
/// The same as the page in the file that `stats_file` names; null if there is none.
static FILE: AtomicPtr<Page> = AtomicPtr::new(null_mut());
/// CPU time of all ticks, in nanoseconds.
static PURGE_CPU_NS: AtomicU64 = AtomicU64::new(0);

/// What the purger says of itself.
#[derive(Clone, Copy)]
pub(super) struct Purging {
    /// The longest that a page stays idle, in milliseconds; `None` where purging is off.
    pub(super) idle_time_ms: Option<u64>,
    /// It may have a thread, and has something to do there.
    pub(super) by_thread: bool,
}

/// After a tick, in the purger's thread. Returns how many bytes of the heap are resident.
pub(super) fn after_tick(cpu_ns: u64, purging: Purging) -> usize {
    PURGE_CPU_NS.fetch_add(cpu_ns, Ordering::Relaxed);
    let statistics = HEAP.statistics(None, false);
    publish(&snapshot(&statistics, purging.idle_time_ms.is_some(), purging));
    statistics.resident
}

/// After a step of growth, so that a process that only grows does not show what it was at its start.
/// Bytes in caches are those of the last tick, so that no thread is disturbed.
pub(super) fn after_growth(purging: Purging) {
    let statistics = HEAP.statistics(None, false);
    publish(&snapshot(&statistics, purging.idle_time_ms.is_some(), purging));
}

/// `counted` says that free pages were counted, now or at the last tick.
pub(super) fn snapshot(statistics: &Statistics, counted: bool, purging: Purging) -> Snapshot {
    Snapshot {
        live_bytes: statistics.live as u64,
        cached_bytes: statistics.cached as u64,
        idle_bytes: statistics.idle as u64,
        resident_bytes: statistics.resident as u64,
        mapped_bytes: statistics.mapped as u64,
        metadata_bytes: statistics.metadata as u64,
        returned_bytes: statistics.returned,
        refaulted_bytes: statistics.refaulted,
        purge_cpu_ns: PURGE_CPU_NS.load(Ordering::Relaxed),
        threads: statistics.threads as u64,
        mechanisms: mechanisms::in_force(purging.by_thread),
        idle_time_ms: purging.idle_time_ms.unwrap_or(u64::MAX),
        process_id: u64::from(HEAP.os.owner_id()),
        published_ms: HEAP.os.now_ms(),
        refused_bytes: statistics.refused,
        returnable_bytes: if counted { statistics.returnable as u64 } else { ebb_stats::UNKNOWN },
    }
}

/// At boot, and in a child: opens the file that `stats_file` names, under this process's id.
pub(super) fn open_file() {
    let Some(pattern) = in_force::text(STATS_FILE) else {
        return;
    };
    // A child of a process in a sandbox: files may be what it must not touch.
    if HEAP.os.is_confined() {
        return;
    }
    let mut room = [0; conf::PATH_BYTES];
    let Some(path) = conf::expand_path(pattern.to_bytes(), HEAP.os.process_id(), &mut room) else {
        return;
    };
    match HEAP.os.map_new_file(path, size_of::<Page>()) {
        Some(file) => {
            let page = file.cast::<Page>();
            // SAFETY: the mapping is new, long enough, aligned to a page, and never unmapped.
            unsafe { page.write(Page::new()) };
            FILE.store(page.as_ptr(), Ordering::Release);
        }
        None => {
            let mut line = Line::new();
            line.push(b"ebbmalloc: stats_file: cannot create ");
            line.push(path.to_bytes());
            line.push(b"\n");
            HEAP.os.write_stderr(line.bytes());
        }
    }
}

/// Whether the counters go to a file as well.
pub(super) fn has_file() -> bool {
    !FILE.load(Ordering::Relaxed).is_null()
}

/// Lets everyone see these counters.
pub(super) fn publish(snapshot: &Snapshot) {
    PAGE.publish(snapshot);
    // SAFETY: null or the mapping that `open_file` made, which is never unmapped.
    if let Some(file) = unsafe { FILE.load(Ordering::Acquire).as_ref() } {
        file.publish(snapshot);
    }
}
