//! The counters for who asks for them in this process.

use super::access::with_own_cache;
use super::instance::HEAP;
use super::publish::{publish, snapshot};
use super::purger::purger::PURGER;
use crate::base::corrupt::Line;
use ebb_stats::Snapshot;

/// The figures of now, exact: every cache that can be claimed is counted.
pub fn stats() -> Snapshot {
    let statistics = with_own_cache(|own| HEAP.statistics(own, true));
    let snapshot = snapshot(&statistics, true, PURGER.standing());
    publish(&snapshot);
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
