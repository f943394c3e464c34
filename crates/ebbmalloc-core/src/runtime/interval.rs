//! Statistics printed as the process allocates: at every so many bytes, by the setting `stats_interval`.

use super::conf::Id;
use super::conf::keys::STATS_INTERVAL_OPTS;
use super::hooks::hooks;
use super::in_force;
use super::thread;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that all threads have allocated. Relaxed: a thread that crosses a multiple of the interval sees it in
/// the sum that it gets.
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
/// A thread prints. Allocations for that must not print in turn.
static PRINTING: AtomicBool = AtomicBool::new(false);

/// Counts a new block of a thread that is observed for this.
#[cold]
pub(super) fn count(bytes: usize) {
    let interval = in_force::number(Id::StatsInterval).max(1);
    let before = ALLOCATED.fetch_add(bytes as u64, Ordering::Relaxed);
    if before / interval == (before + bytes as u64) / interval {
        return;
    }
    // A signal handler in the middle of a request must not wait for the locks that this takes.
    if thread::is_inside() || PRINTING.swap(true, Ordering::Relaxed) {
        return;
    }
    let options = in_force::text(STATS_INTERVAL_OPTS).unwrap_or_default();
    (hooks().print_statistics)(options);
    PRINTING.store(false, Ordering::Relaxed);
}
