//! From the facts of a look at processes to a verdict. Pure: nothing here reads a process or a clock.
//!
//! Used by `ebb why`, `diff`, `watch` and `trim`. It knows no trial and renders nothing. One look proves that memory is
//! held, never a leak: that needs two, or a slope.
//!
//! - [`facts`]: the conclusions, as plain data.
//! - [`ledger`], [`bridge`]: where the memory is, with a signed remainder; from the processes to their cgroup.
//! - [`findings`], `settings`: each cause with its figure; what an allocator's own settings can do about it.
//! - [`workers`], `next`, [`conclude`]: groups of alike processes; what to type next; the verdict in one sentence.
//! - [`difference`], [`growth`]: what grew between two looks; the verdict over several.
//! - [`trim`]: whether malloc_trim is to be called, and what it would do.

pub mod bridge;
pub mod conclude;
pub mod difference;
pub mod facts;
pub mod findings;
pub mod growth;
pub mod ledger;
mod next;
mod settings;
pub mod trim;
pub mod workers;

use crate::facts::diagnosis::Diagnosis;
use ebb_process::snapshot::Snapshot;

/// What follows from one look.
pub fn of(snapshot: Snapshot) -> Diagnosis {
    let ledger = ledger::of(&snapshot);
    let bridge = bridge::of(&snapshot, &ledger);
    let findings = findings::of(&snapshot, &ledger);
    let verdict = conclude::verdict(&snapshot, &ledger, &findings);
    Diagnosis { verdict, ledger, bridge, findings, snapshot }
}

#[cfg(test)]
mod tests;
