//! The counters for readers in this process, and printing them at its end.

use super::access::with_own_cache;
use super::hooks::hooks;
use super::instance::HEAP;
use super::profile::dumps;
use super::purger::purger::PURGER;
use super::state::State;
use super::{conf, in_force, publish};
use crate::base::corrupt::Line;
use ebb_stats::Snapshot;

/// The figures of now, exact: every cache that can be claimed is counted.
pub fn stats() -> Snapshot {
    let statistics = with_own_cache(|own| HEAP.statistics(own, true));
    let snapshot = publish::snapshot(&statistics, true, PURGER.standing());
    publish::publish(&snapshot);
    snapshot
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

/// At the end of the process (the face's destructor): prints what was asked for, and looks for wrong frees that no flush
/// has met.
pub fn finish() {
    last_words();
    dumps::at_exit();
    // In the child of a fork without handlers locks may be held by threads that it does not have, and a slow path must
    // come first.
    if HEAP.os.is_alive_here()
        && let Some(own) = State::now().cache()
    {
        HEAP.check_cache(own);
    }
}

/// The last figures, and in words what was asked for.
fn last_words() {
    if in_force::is(conf::Id::StatsPrint) {
        let options = in_force::text(conf::keys::STATS_PRINT_OPTS);
        (hooks().print_statistics)(options.unwrap_or_default());
        stats();
    } else if publish::has_file() {
        stats();
    }
}
