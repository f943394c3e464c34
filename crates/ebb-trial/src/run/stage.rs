//! What all runs of a trial have in common, and why one does not come to its end.

use std::sync::Arc;
use std::time::Duration;

use crate::enclosure::Enclosures;
use crate::interrupt::{Groups, Interrupt};
use crate::launch::Process;
use crate::logs::Logs;
use crate::results::{Metric, Run};
use crate::sampler::Observer;
use crate::schedule::Step;
use crate::workload::Workload;

/// What all runs of a trial have in common.
pub struct Stage<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// The phases in order.
    pub steps: &'a [Step],
    /// Looks at the processes.
    pub observer: Arc<dyn Observer>,
    /// Set when the user interrupts the trial.
    pub interrupt: Interrupt,
    /// What to kill when asked twice.
    pub groups: Groups,
    /// The memory metric that is compared.
    pub metric: Metric,
    /// Between two samples.
    pub interval: Duration,
    /// Where the logs go.
    pub logs: &'a Logs,
    /// Makes the place of limits for each run, where there are limits.
    pub enclosures: Option<&'a dyn Enclosures>,
}

/// Why a run did not come to its end.
pub(super) enum End {
    /// It failed.
    Failed {
        /// The reason.
        reason: String,
        /// What the process wrote last.
        last_lines: Vec<String>,
    },
    Discarded(String),
    Interrupted,
}

impl From<String> for End {
    fn from(reason: String) -> End {
        End::Failed { reason, last_lines: Vec::new() }
    }
}

/// Adds what a reader should know, once.
pub(crate) fn note(record: &mut Run, text: String) {
    if !record.notes.contains(&text) {
        record.notes.push(text);
    }
}

/// What a process of the run ended with.
pub(super) fn failed(reason: String, process: &Process) -> End {
    End::Failed { reason, last_lines: process.last_lines() }
}
