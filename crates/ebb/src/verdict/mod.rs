//! From the facts of a look at processes to a verdict. Pure: nothing here reads a process or a clock.
//!
//! - [`ledger`]: where the memory is; the lines add up, with a signed remainder.
//! - [`bridge`]: from the processes to their cgroup.
//! - [`findings`]: each cause with its figure, those that are ruled out as well.
//! - `settings`: what an allocator's own settings can do about a cause.
//! - [`conclude`]: the verdict and one sentence.
//! - `next`: what to type next.
//! - [`difference`]: what grew between two.
//! - [`growth`]: the verdict over several looks, on the robust slopes of [`crate::statistics::slope`].
//! - [`workers`]: the processes in groups, those that are alike together.
//! - [`trim`]: whether malloc_trim is to be called, and what it would do.
//!
//! One look proves that memory is held, never a leak: that needs two, or a slope.

pub mod bridge;
pub mod conclude;
pub mod difference;
pub mod findings;
pub mod growth;
pub mod ledger;
mod next;
mod settings;
pub mod trim;
pub mod workers;

use crate::facts::diagnosis::Diagnosis;
use crate::facts::snapshot::Snapshot;

/// What follows from one look.
pub fn of(snapshot: Snapshot) -> Diagnosis {
    let ledger = ledger::of(&snapshot);
    let bridge = bridge::of(&snapshot, &ledger);
    let findings = findings::of(&snapshot, &ledger);
    let verdict = conclude::verdict(&snapshot, &ledger, &findings);
    Diagnosis {
        verdict,
        ledger,
        bridge,
        findings,
        snapshot,
    }
}

#[cfg(test)]
mod tests;
