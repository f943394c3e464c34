//! The published counters, the settings' effects, and the words printed on request.

use super::hooks::hooks;
use super::instance::HEAP;
use super::{conf, control, fork, in_force, purger, settings, thread};
use crate::base::corrupt::Line;
use crate::heap::Heap;
use crate::heap::statistics::Statistics;
use crate::os::Os;
use crate::os::linux::Linux;
use crate::size::CLASS;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use ebb_stats::layout::Layout;
use ebb_stats::{Page, Snapshot, mechanism};

/// The page that `ebb` reads from outside; nothing inside needs it, so the linker is told to keep it.
#[used]
static PAGE: Page = Page::new();
/// Where `ebb` finds the heap itself, kept like the page.
#[used]
static LAYOUT: Layout = Layout::new(
    (&raw const HEAP).cast(),
    (&raw const CLASS).cast(),
    Heap::<Linux>::OFFSETS,
);
/// The same as the page in the file that `stats_file` names; null if there is none.
static FILE: AtomicPtr<Page> = AtomicPtr::new(null_mut());
/// CPU time of all ticks, in nanoseconds.
static PURGE_CPU_NS: AtomicU64 = AtomicU64::new(0);

/// The figures of now, exact: every cache that can be claimed is counted.
pub fn stats() -> Snapshot {
    let statistics = thread::with_own_cache(|own| HEAP.statistics(own, true));
    let snapshot = snapshot(&statistics, true);
    publish(&snapshot);
    snapshot
}

/// After a tick, in the purger's thread. Returns how many bytes of the heap are resident.
pub(super) fn after_tick(cpu_ns: u64) -> usize {
    PURGE_CPU_NS.fetch_add(cpu_ns, Ordering::Relaxed);
    let statistics = HEAP.statistics(None, false);
    publish(&snapshot(&statistics, purger::is_on()));
    statistics.resident
}

/// After a step of growth, so that a process that only grows does not show what it was at its start.
/// Caches count as of the last tick: nobody is disturbed for it.
pub(super) fn after_growth() {
    publish(&snapshot(&HEAP.statistics(None, false), purger::is_on()));
}

/// `counted` says that free pages were counted, now or at the last tick.
fn snapshot(statistics: &Statistics, counted: bool) -> Snapshot {
    Snapshot {
        live_bytes: statistics.live as u64,
        cached_bytes: statistics.cached as u64,
        idle_bytes: statistics.idle as u64,
        resident_bytes: statistics.resident as u64,
        mapped_bytes: statistics.mapped as u64,
        metadata_bytes: statistics.metadata as u64,
        returned_bytes: statistics.returned,
        refaulted_bytes: statistics.refaulted,
        purges: statistics.ticks,
        purge_cpu_ns: PURGE_CPU_NS.load(Ordering::Relaxed),
        discard_calls: statistics.discard_calls,
        claims: statistics.claims,
        claims_refused: statistics.claims_refused,
        threads: statistics.threads as u64,
        large_live_bytes: statistics.live_large as u64,
        slab_live_bytes: statistics.live.saturating_sub(statistics.live_large) as u64,
        mechanisms: mechanisms(),
        idle_time_ms: purger::idle_time_ms().unwrap_or(u64::MAX),
        process_id: u64::from(HEAP.os.owner_id()),
        published_ms: HEAP.os.now_ms(),
        refused_bytes: statistics.refused,
        returnable_bytes: match counted {
            true => statistics.returnable as u64,
            false => ebb_stats::UNKNOWN,
        },
    }
}

/// The mechanisms in force, as far as they have been tried.
pub(super) fn mechanisms() -> u64 {
    let mut bits = 0;
    for (works, bit) in [
        (
            HEAP.os.membarrier_works() == Some(true),
            mechanism::MEMBARRIER,
        ),
        (
            HEAP.os.process_madvise_works() == Some(true),
            mechanism::PROCESS_MADVISE,
        ),
        (
            purger::has_thread() && purger::is_on(),
            mechanism::PURGER_THREAD,
        ),
        (fork::is_registered(), mechanism::FORK_HANDLERS),
        (thread::hears_of_exits(), mechanism::THREAD_EXIT),
        (HEAP.os.has_fork_mark(), mechanism::FORK_MARK),
        (control::has_cpython(), mechanism::CPYTHON),
    ] {
        if works {
            bits |= bit;
        }
    }
    bits
}

/// At boot, and in a child: opens the file that `stats_file` names, under this process's id.
pub(super) fn open_file() {
    let Some(pattern) = settings::stats_file() else {
        return;
    };
    // A child of a process in a sandbox: files may be what it must not touch.
    if HEAP.os.is_confined() {
        return;
    }
    let mut room = [0; conf::PATH_BYTES];
    let Some(path) = conf::expand_path(pattern, HEAP.os.process_id(), &mut room) else {
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

/// At the end of the process: the last figures, and in words what was asked for.
pub(super) fn at_exit() {
    if in_force::is(conf::Id::StatsPrint) {
        let options = in_force::text(conf::keys::STATS_PRINT_OPTS);
        (hooks().print_statistics)(options.unwrap_or_default());
        stats();
    } else if !FILE.load(Ordering::Relaxed).is_null() {
        stats();
    }
}

fn publish(snapshot: &Snapshot) {
    PAGE.publish(snapshot);
    // SAFETY: null or the mapping that `open_file` made, which is never unmapped.
    if let Some(file) = unsafe { FILE.load(Ordering::Acquire).as_ref() } {
        file.publish(snapshot);
    }
}

/// Writes the figures in words, a line each, through `write`.
pub fn write_stats(write: &mut dyn FnMut(&[u8])) {
    let snapshot = stats();
    write(b"ebbmalloc statistics (bytes unless the name says otherwise)\n");
    for (name, value) in ebb_stats::NAMES.iter().zip(snapshot.words()) {
        let mut line = Line::new();
        line.push(b"  ");
        line.push(name.as_bytes());
        line.push(b": ");
        line.push_decimal(value);
        line.push(b"\n");
        write(line.bytes());
    }
}
