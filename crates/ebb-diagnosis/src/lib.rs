//! From the facts of looks at processes to a verdict. Pure: nothing here reads a process or a clock.
//!
//! [`of`] diagnoses one look, [`difference::of`] compares two, [`life::of`] the phases of a program, [`growth::of`] concludes from many,
//! [`growth::steps`] finds steps and the events before them; [`trim::judge`] says whether malloc_trim is to be called,
//! [`workers::pools`] compares workers with their siblings, [`periods::compare`] two periods of a recording,
//! [`fleet::rank`] the workloads of a fleet. What they return is plain data in
//! [`facts`]. One look proves that memory is held, never a leak. `examples/diagnose.rs` does it for a file of `ebb snap`.
//!
//! Inside, from below: `ledger` says where the memory is, `settings` and `next` what can be done, [`findings`] gives each
//! cause its figure, `verdict` the verdict in one sentence.

pub mod autoscale;
pub mod difference;
pub mod findings;
pub mod fleet;
pub mod growth;
mod ledger;
pub mod life;
mod next;
pub mod periods;
mod settings;
pub mod trim;
mod verdict;
pub mod workers;

/// What a diagnosis concludes, as plain data.
pub mod facts {
    pub mod autoscale;
    pub mod diagnosis;
    pub mod fleet;
    pub mod growth;
    pub mod life;
    pub mod periods;
    pub mod trim;
    pub mod workers;
}

use crate::facts::diagnosis::Diagnosis;
use ebb_process::snapshot::Snapshot;

/// What follows from one look.
pub fn of(snapshot: Snapshot) -> Diagnosis {
    let ledger = ledger::of(&snapshot.processes);
    let bridge = ledger::bridge(&snapshot, &ledger);
    let findings = findings::of(&snapshot, &ledger);
    let verdict = verdict::verdict(&snapshot, &ledger, &findings);
    let workers = workers::pools(&snapshot);
    Diagnosis { verdict, ledger, bridge, findings, workers, snapshot }
}

#[cfg(test)]
mod tests;
