//! The published counters, the settings' effects, and the words printed on request.

use super::instance::HEAP;
use super::{fork, purger, thread};
use crate::base::corrupt::Line;
use crate::heap::statistics::Statistics;
use crate::os::Os;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_stats::{Page, Snapshot, mechanism};

/// The page that `ebb` reads from outside.
static PAGE: Page = Page::new();
/// CPU time of all ticks, in nanoseconds.
static PURGE_CPU_NS: AtomicU64 = AtomicU64::new(0);

/// The figures of now, exact: every cache that can be claimed is counted.
pub fn stats() -> Snapshot {
    let statistics = thread::with_own_cache(|own| HEAP.statistics(own, true));
    let snapshot = snapshot(&statistics);
    PAGE.publish(&snapshot);
    snapshot
}

/// After a tick, in the purger's thread.
pub(super) fn after_tick(cpu_ns: u64) {
    PURGE_CPU_NS.fetch_add(cpu_ns, Ordering::Relaxed);
    PAGE.publish(&snapshot(&HEAP.statistics(None, false)));
}

fn snapshot(statistics: &Statistics) -> Snapshot {
    Snapshot {
        live_bytes: statistics.live as u64,
        cached_bytes: statistics.cached as u64,
        idle_bytes: statistics.idle as u64,
        resident_bytes: statistics.resident as u64,
        mapped_bytes: statistics.mapped as u64,
        metadata_bytes: statistics.metadata as u64,
        returned_bytes: statistics.returned,
        refaulted_bytes: statistics.faulted,
        purges: statistics.ticks,
        purge_cpu_ns: PURGE_CPU_NS.load(Ordering::Relaxed),
        discard_calls: statistics.discard_calls,
        claims: statistics.claims,
        claims_refused: statistics.claims_refused,
        threads: statistics.threads as u64,
        large_live_bytes: statistics.live_large as u64,
        slab_live_bytes: statistics.live.saturating_sub(statistics.live_large) as u64,
        mechanisms: mechanisms(),
        idle_time_ms: if purger::is_on() { 2 * purger::INTERVAL_MS } else { u64::MAX },
        process_id: u64::from(HEAP.os.process_id()),
        published_ms: HEAP.os.now_ms(),
        refused_bytes: statistics.refused,
    }
}

/// The mechanisms in force, as far as they have been tried.
fn mechanisms() -> u64 {
    let mut bits = 0;
    for (works, bit) in [
        (HEAP.os.membarrier_works() == Some(true), mechanism::MEMBARRIER),
        (HEAP.os.process_madvise_works() == Some(true), mechanism::PROCESS_MADVISE),
        (purger::has_thread() && purger::is_on(), mechanism::PURGER_THREAD),
        (fork::is_registered(), mechanism::FORK_HANDLERS),
    ] {
        if works {
            bits |= bit;
        }
    }
    bits
}

/// At boot: settings from the environment.
pub(super) fn read_settings() {}

/// At the end of the process.
pub(super) fn at_exit() {}

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
