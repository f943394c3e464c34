//! One run of a variant as it was measured: its phases, its samples, what else was observed. Moments (`at_s`, `from_s`,
//! `to_s`) count from readiness, rounds and repetitions from 1.

use super::findings::FreeMemory;
use super::measures::Measures;
use crate::results::sureness::Disturbance;
use ebb_diagnosis::facts::growth::{EventKind, FloorStep};
use ebb_process::instruments::Instrument;
use ebb_statistics::slope::Slope;
use serde::{Deserialize, Serialize};

/// One run: the service from ready to end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Which repetition, from 1.
    pub repetition: u32,
    pub outcome: Outcome,
    /// From start to readiness.
    pub ready_after_s: Option<f64>,
    pub phases: Vec<PhaseSpan>,
    pub samples: Vec<Sample>,
    pub marks: Vec<Mark>,
    /// Live heap as reported by the workload's `[live]`.
    pub live: Vec<Live>,
    /// Around the malloc_trim at the end.
    pub trim: Option<Trim>,
    /// Free memory of glibc's malloc at the end, before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<FreeMemory>,
    /// Processes of it that were killed for lack of memory.
    pub oom: Option<Oom>,
    /// The lowest memory limit that applied to its cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    #[serde(default)]
    pub health: Vec<HealthAnswer>,
    /// Time for which a CPU quota held it back; `None` where there is no quota.
    pub throttled_s: Option<f64>,
    pub measures: Measures,
    /// What a reader should know about this run.
    pub notes: Vec<String>,
    /// Load of other programs on the machine.
    #[serde(default)]
    pub disturbance: Disturbance,
    /// What was seen switched on in the service.
    #[serde(default)]
    pub instruments: Vec<Instrument>,
    /// How the floors of its rests move from round to round, or from window to window.
    pub slope: Option<Slope>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<Restart>,
    /// Steps of the floor of a service that was watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<FloorStep>,
    /// The events after which its floor rose, the likeliest cause first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventKind>,
}

impl Run {
    /// A run in which nothing was seen yet.
    pub fn new(repetition: u32) -> Run {
        Run { repetition, ..Run::default() }
    }

    /// The results of the loads that count, in the order of the phases.
    pub fn loads(&self) -> impl Iterator<Item = &LoadResult> {
        let spans = self.phases.iter().filter(|span| span.kind.counts());
        spans.filter_map(|span| span.load.as_ref())
    }
}

/// A restart of a service that was watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    /// When it was there again.
    pub at_s: f64,
    pub text: String,
}

/// A phase as it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseSpan {
    pub name: String,
    pub kind: PhaseKind,
    pub round: u32,
    pub from_s: f64,
    pub to_s: f64,
    pub load: Option<LoadResult>,
}

/// What a phase is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseKind {
    /// Brings caches and lazy imports in; does not count for throughput.
    Warmup,
    Load,
    Burst,
    /// Nothing is sent.
    Idle,
    /// The load once more after the rest.
    Reload,
}

impl PhaseKind {
    /// Whether its requests count for throughput and latency.
    pub fn counts(self) -> bool {
        matches!(self, PhaseKind::Load | PhaseKind::Burst | PhaseKind::Reload)
    }

    /// Its name in reports.
    pub fn label(self) -> &'static str {
        match self {
            PhaseKind::Warmup => "warm-up",
            PhaseKind::Load => "load",
            PhaseKind::Burst => "burst",
            PhaseKind::Idle => "idle",
            PhaseKind::Reload => "reload",
        }
    }
}

/// Summary on the last line of a load command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// Requests that were answered.
    pub requests: u64,
    #[serde(default)]
    pub errors: u64,
    pub seconds: f64,
    /// Requests that were under way at once, where the load knows it.
    pub concurrency: Option<f64>,
    pub latency_ms: Option<Quantiles>,
    /// Upper bound and number of requests up to it.
    pub histogram_ms: Option<Vec<(f64, u64)>>,
    /// Whose summary it is: a load tool's name, or the generator with its loop. `None`: the load's own.
    pub tool: Option<String>,
}

/// Two quantiles of a latency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    pub p50: f64,
    /// The 99th percentile; not every tool tells it.
    pub p99: Option<f64>,
}

/// The process tree at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub at_s: f64,
    pub rss_bytes: Option<u64>,
    /// Proportional share.
    pub pss_bytes: Option<u64>,
    pub anon_bytes: Option<u64>,
    /// Live heap, where a reader of the allocator can tell it.
    pub live_bytes: Option<u64>,
    /// CPU time so far, user and system, ended children that were waited for included.
    pub cpu_s: Option<f64>,
    /// Kernel part of `cpu_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_system_s: Option<f64>,
    /// Page faults so far that needed no disk, those of ended children that were waited for included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<u64>,
    /// Pages so far that a process of the tree had returned and touched again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refaults: Option<u64>,
    pub processes: u32,
    /// What an autoscaler sees of its cgroup (usage minus inactive file), of a cgroup that is watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_bytes: Option<u64>,
}

/// A named state at the end of a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    pub name: String,
    pub round: u32,
    pub at_s: f64,
    /// Memory there (the trial's metric): the median of the last second.
    pub bytes: Option<u64>,
}

/// An answer of the workload's `[live]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Live {
    pub at_s: f64,
    pub bytes: u64,
}

/// Processes of a run that the kernel killed for lack of memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Oom {
    /// When the first was seen, in seconds after readiness; `None`: before.
    pub at_s: Option<f64>,
    pub kills: u64,
    /// The limit that they ran into, where it can be read.
    pub limit_bytes: Option<u64>,
}

/// An answer of the health address.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HealthAnswer {
    /// When it was asked, in seconds after readiness.
    pub at_s: f64,
    /// How long the answer took; `None` where there was no good one.
    pub latency_ms: Option<f64>,
}

/// Memory around a malloc_trim, measured from outside.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trim {
    pub before_bytes: u64,
    pub after_bytes: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// All phases ran: it counts.
    #[default]
    Complete,
    /// It ran but must not count, because the allocator was not in charge.
    Discarded { reason: String },
    /// The service or a load failed: the variant ends here.
    Failed { reason: String, last_lines: Vec<String> },
    /// Ctrl-C came.
    Interrupted,
}
