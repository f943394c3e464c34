//! The facts of one trial: what was run, what was measured, what it comes to.
//!
//! This is also the layout of `results.json` (`docs/report.md` documents every field). A value that
//! was not measured is `None` (`null`), never 0. Bytes are bytes, `_s` are seconds, `_ms` milliseconds. It is one file,
//! though long, because it is one layout that is read from top to bottom.

use super::against::Against;
use super::growth::Slope;
use super::sureness::{Decay, Disturbance, Instrument, Reading, Stopping, Trap, Tuned};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The version of the layout; raised when a field changes its meaning or goes.
pub const FORMAT: u32 = 1;

/// A whole trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Version of this layout, [`FORMAT`].
    pub format: u32,
    /// Version of the tool.
    pub ebb_version: String,
    /// When the trial began, UTC, RFC 3339.
    pub started: String,
    /// How long it took.
    pub seconds: f64,
    /// What was driven.
    pub workload: Workload,
    /// Where.
    pub machine: Machine,
    /// Runs a variant that were asked for.
    pub repetitions: u32,
    /// Time between two samples.
    pub interval_ms: u64,
    /// Which memory the table's figures are.
    pub metric: Metric,
    /// What the service of each run was held to.
    #[serde(default)]
    pub limits: Limits,
    /// What came of `--max-rest`.
    #[serde(default)]
    pub max_rest: Vec<MaxRest>,
    /// Ctrl-C came before the end.
    pub interrupted: bool,
    /// In the order in which they were asked for; the first is what the others are compared to.
    pub variants: Vec<Variant>,
    /// What it comes to.
    pub verdict: Verdict,
    /// How it stopped, where it repeated until it was sure.
    #[serde(default)]
    pub stopping: Option<Stopping>,
    /// What may mislead in it.
    #[serde(default)]
    pub traps: Vec<Trap>,
    /// What it says against an earlier trial.
    #[serde(default)]
    pub against: Option<Against>,
    /// What it says of the settings of one allocator.
    #[serde(default)]
    pub tuned: Option<Tuned>,
    /// Services were watched that ran already, not started for the trial.
    #[serde(default)]
    pub canary: Option<Canary>,
}

/// How services that ran already were watched.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    /// Time between two looks.
    pub every_s: f64,
    /// Windows that the time is cut into; the figures are of windows, as those of a trial are of runs.
    pub windows: u32,
    /// Length of a window.
    pub window_s: f64,
}

/// The workload as it was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// One line about it.
    pub description: String,
    /// The profile that was chosen.
    pub profile: Option<String>,
    /// The variables after the profile.
    pub vars: BTreeMap<String, String>,
    /// The number of rounds of each cycle after the profile.
    pub cycles: BTreeMap<String, u32>,
    /// Of everything that drives the service.
    #[serde(default)]
    pub digest: Option<String>,
}

/// The machine that the trial ran on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: Option<String>,
    /// Processors that this process may use.
    pub processors: Option<usize>,
    /// Memory of the machine.
    pub memory_bytes: Option<u64>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Setting of transparent huge pages.
    pub thp: Option<String>,
    /// Name of the system.
    pub system: Option<String>,
}

/// What the service of each run was held to by a cgroup of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory, swap included.
    pub memory_max_bytes: Option<u64>,
    /// Processors.
    pub cpus: Option<f64>,
}

/// A variant against what it may hold after the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MaxRest {
    /// The variant.
    pub variant: String,
    /// What it may hold.
    pub max_bytes: u64,
    /// What it holds; `None` where it never came to its rest.
    pub after_rest_bytes: Option<u64>,
    /// Whether that is no more, and no run was killed on its way there.
    pub kept: bool,
}

/// A kind of memory figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Resident pages, summed over the processes: shared pages count in each.
    Rss,
    /// Resident pages, shared ones divided by the number of their users.
    Pss,
    /// Anonymous resident pages: heap, stacks, arenas.
    Anon,
}

impl Metric {
    /// Its name in reports.
    pub fn label(self) -> &'static str {
        match self {
            Metric::Rss => "RSS",
            Metric::Pss => "PSS",
            Metric::Anon => "anonymous memory",
        }
    }

    /// The figure of this kind in a sample.
    pub fn of(self, sample: &Sample) -> Option<u64> {
        match self {
            Metric::Rss => sample.rss_bytes,
            Metric::Pss => sample.pss_bytes,
            Metric::Anon => sample.anon_bytes,
        }
    }
}

/// One variant: an allocator with its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Its name in the table.
    pub name: String,
    /// The allocator: `glibc` where nothing is preloaded.
    pub allocator: String,
    /// What was preloaded.
    pub library: Option<PathBuf>,
    /// What was preloaded beside the allocator; such a variant is a reference, never recommended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<PathBuf>,
    /// The program brings the allocator itself.
    #[serde(default)]
    pub linked: bool,
    /// Started instead of the workload's service.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// The environment that makes it this variant, without the preload.
    pub env: BTreeMap<String, String>,
    /// When it means to give idle memory back, where its settings tell.
    #[serde(default)]
    pub decay: Option<Decay>,
    /// Why it could not be run at all (not installed, with the package that has it).
    pub unavailable: Option<String>,
    /// Its runs, in order.
    pub runs: Vec<Run>,
    /// What the complete runs come to; `None` where there is none.
    pub summary: Option<Summary>,
}

impl Variant {
    /// What was preloaded, in the loader's order.
    pub fn preloaded(&self) -> Vec<&Path> {
        self.library
            .iter()
            .chain(&self.beside)
            .map(PathBuf::as_path)
            .collect()
    }

    /// What is said where nothing was.
    pub fn without_preload(&self) -> String {
        match self.linked {
            true => format!("nothing: {} is in the program", self.allocator),
            false => "nothing".to_owned(),
        }
    }

    /// The runs that count.
    pub fn complete(&self) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(|run| run.outcome == Outcome::Complete)
    }

    /// Whether a load of a complete run said nothing that could be read.
    pub fn has_unread_loads(&self) -> bool {
        self.complete()
            .flat_map(|run| &run.phases)
            .any(|span| span.kind.counts() && span.load.is_none())
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// All phases ran: it counts.
    Complete,
    /// It ran but must not count, because the allocator was not in charge.
    Discarded {
        /// What was seen.
        reason: String,
    },
    /// The service or a load failed: the variant ends here.
    Failed {
        /// What failed.
        reason: String,
        /// The last lines of what failed.
        last_lines: Vec<String>,
    },
    /// Ctrl-C came.
    Interrupted,
}

/// One run: the service from ready to end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Which repetition, from 1.
    pub repetition: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// From start to readiness.
    pub ready_after_s: Option<f64>,
    /// The phases that ran, in order.
    pub phases: Vec<PhaseSpan>,
    /// The samples, in order.
    pub samples: Vec<Sample>,
    /// The named marks, in order.
    pub marks: Vec<Mark>,
    /// Live heap as the workload's `[live]` told it.
    pub live: Vec<Live>,
    /// Around the malloc_trim at the end.
    pub trim: Option<Trim>,
    /// Processes of it that were killed for want of memory.
    #[serde(default)]
    pub oom: Option<Oom>,
    /// The health address under load.
    #[serde(default)]
    pub health: Vec<HealthAnswer>,
    /// Time for which a CPU quota held it back; `None` where there is no quota.
    #[serde(default)]
    pub throttled_s: Option<f64>,
    /// The figures of this run.
    pub measures: Measures,
    /// What a reader should know about this run.
    pub notes: Vec<String>,
    /// What the machine did beside it.
    #[serde(default)]
    pub disturbance: Disturbance,
    /// What was seen switched on in the service.
    #[serde(default)]
    pub instruments: Vec<Instrument>,
    /// How the floors of its rests move from round to round, or from window to window.
    #[serde(default)]
    pub slope: Option<Slope>,
    /// Restarts of a service that was watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<Restart>,
}

/// A restart of a service that was watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    /// When it was there again.
    pub at_s: f64,
    /// What was seen.
    pub text: String,
}

/// A phase as it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseSpan {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: PhaseKind,
    /// Which time round, from 1.
    pub round: u32,
    /// Seconds after readiness.
    pub from_s: f64,
    /// Seconds after readiness.
    pub to_s: f64,
    /// What its load told.
    pub load: Option<LoadResult>,
}

/// What a phase is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseKind {
    /// Brings caches and lazy imports in; does not count for throughput.
    Warmup,
    /// Steady load.
    Load,
    /// A burst.
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

/// What a load command told on its last line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// Requests that were answered.
    pub requests: u64,
    /// Requests that failed.
    #[serde(default)]
    pub errors: u64,
    /// How long it took.
    pub seconds: f64,
    /// Requests that were under way at once, where the load knows it.
    #[serde(default)]
    pub concurrency: Option<f64>,
    /// Quantiles of the latency.
    #[serde(default)]
    pub latency_ms: Option<Quantiles>,
    /// Upper bound and number of requests up to it.
    #[serde(default)]
    pub histogram_ms: Option<Vec<(f64, u64)>>,
    /// Whose summary it is: a load tool's name, or the generator with its loop. `None`: the load's own.
    #[serde(default)]
    pub tool: Option<String>,
}

/// Two quantiles of a latency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// The 99th percentile; not every tool tells it.
    #[serde(default)]
    pub p99: Option<f64>,
}

/// The process tree at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds after readiness.
    pub at_s: f64,
    /// Resident pages.
    pub rss_bytes: Option<u64>,
    /// Proportional share.
    pub pss_bytes: Option<u64>,
    /// Anonymous resident pages.
    pub anon_bytes: Option<u64>,
    /// Live heap, where a reader of the allocator can tell it.
    pub live_bytes: Option<u64>,
    /// CPU time so far, user and system, ended children that were waited for included.
    pub cpu_s: Option<f64>,
    /// Processes in the tree.
    pub processes: u32,
    /// What an autoscaler sees of its cgroup (usage minus inactive file), of a cgroup that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_bytes: Option<u64>,
}

/// A named state at the end of a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// Which time round, from 1.
    pub round: u32,
    /// Seconds after readiness.
    pub at_s: f64,
    /// Memory there (the trial's metric): the median of the last second.
    pub bytes: Option<u64>,
}

/// An answer of the workload's `[live]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// Seconds after readiness.
    pub at_s: f64,
    /// Bytes in use by the program.
    pub bytes: u64,
}

/// Processes of a run that the kernel killed for want of memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Oom {
    /// When the first was seen, in seconds after readiness; `None`: before.
    pub at_s: Option<f64>,
    /// How many.
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
    /// Just before.
    pub before_bytes: u64,
    /// Just after.
    pub after_bytes: u64,
}

/// The figures of one run, or the names of a table's columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// Memory at the end of the warm-up.
    pub baseline_bytes: Option<f64>,
    /// The highest sample.
    pub peak_bytes: Option<f64>,
    /// Memory at the end of the last rest.
    pub after_rest_bytes: Option<f64>,
    /// After rest minus baseline.
    pub growth_bytes: Option<f64>,
    /// What malloc_trim gave back at the end.
    pub reclaimable_bytes: Option<f64>,
    /// Live heap at the end of the last rest.
    pub live_bytes: Option<f64>,
    /// CPU time from readiness to the end of the last phase.
    pub cpu_s: Option<f64>,
    /// Requests a second over the loaded phases.
    pub throughput_per_s: Option<f64>,
    /// Median latency.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the latency.
    pub p99_ms: Option<f64>,
    /// Slope of the rests' floors, per hour.
    #[serde(default)]
    pub slope_bytes_per_h: Option<f64>,
    /// The slowest answer of the health address under load.
    #[serde(default)]
    pub health_max_ms: Option<f64>,
    /// Time for which a CPU quota held the service back.
    #[serde(default)]
    pub throttled_s: Option<f64>,
    /// Of a window: the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typical_bytes: Option<f64>,
    /// Of a window: the lowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_bytes: Option<f64>,
    /// Of a window: the median of the cgroup's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_bytes: Option<f64>,
}

/// A variant's figures over its complete runs, by column.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Complete runs.
    pub runs: u32,
    /// Requests that failed, over all complete runs.
    pub errors: u64,
    /// Median and spread of each column that was measured.
    pub figures: BTreeMap<Column, Figure>,
}

impl Summary {
    /// The median of a column.
    pub fn median(&self, column: Column) -> Option<f64> {
        self.figures.get(&column).map(|figure| figure.median)
    }
}

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// [`Measures::baseline_bytes`].
    Baseline,
    /// [`Measures::peak_bytes`].
    Peak,
    /// [`Measures::after_rest_bytes`].
    AfterRest,
    /// [`Measures::growth_bytes`].
    Growth,
    /// [`Measures::reclaimable_bytes`].
    Reclaimable,
    /// [`Measures::live_bytes`].
    Live,
    /// [`Measures::cpu_s`].
    Cpu,
    /// [`Measures::throughput_per_s`].
    Throughput,
    /// [`Measures::p50_ms`].
    P50,
    /// [`Measures::p99_ms`].
    P99,
    /// [`Measures::slope_bytes_per_h`].
    Slope,
    /// [`Measures::health_max_ms`].
    HealthMax,
    /// [`Measures::throttled_s`].
    Throttled,
    /// [`Measures::typical_bytes`].
    Typical,
    /// [`Measures::floor_bytes`].
    Floor,
    /// [`Measures::cgroup_bytes`].
    Cgroup,
}

/// The unit of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown as MB.
    Bytes,
    /// Seconds.
    Seconds,
    /// Requests a second.
    PerSecond,
    /// Milliseconds.
    Milliseconds,
    /// Bytes an hour, shown as MB/h.
    BytesPerHour,
}

impl Column {
    /// All columns in the order of the table.
    pub const ALL: [Column; 16] = [
        Column::Baseline,
        Column::Peak,
        Column::AfterRest,
        Column::Growth,
        Column::Reclaimable,
        Column::Live,
        Column::Cpu,
        Column::Throughput,
        Column::P50,
        Column::P99,
        Column::Slope,
        Column::HealthMax,
        Column::Throttled,
        Column::Typical,
        Column::Floor,
        Column::Cgroup,
    ];

    /// Its heading.
    pub fn label(self) -> &'static str {
        match self {
            Column::Baseline => "baseline",
            Column::Peak => "peak",
            Column::AfterRest => "after rest",
            Column::Growth => "growth",
            Column::Reclaimable => "reclaimable",
            Column::Live => "live heap",
            Column::Cpu => "CPU s",
            Column::Throughput => "requests/s",
            Column::P50 => "p50 ms",
            Column::P99 => "p99 ms",
            Column::Slope => "slope MB/h",
            Column::HealthMax => "health max ms",
            Column::Throttled => "throttled s",
            Column::Typical => "median",
            Column::Floor => "floor",
            Column::Cgroup => "cgroup",
        }
    }

    /// Its unit.
    pub fn unit(self) -> Unit {
        match self {
            Column::Cpu | Column::Throttled => Unit::Seconds,
            Column::Throughput => Unit::PerSecond,
            Column::Slope => Unit::BytesPerHour,
            Column::P50 | Column::P99 | Column::HealthMax => Unit::Milliseconds,
            _ => Unit::Bytes,
        }
    }

    /// The figure of this column in a run.
    pub fn of(self, measures: &Measures) -> Option<f64> {
        match self {
            Column::Baseline => measures.baseline_bytes,
            Column::Peak => measures.peak_bytes,
            Column::AfterRest => measures.after_rest_bytes,
            Column::Growth => measures.growth_bytes,
            Column::Reclaimable => measures.reclaimable_bytes,
            Column::Live => measures.live_bytes,
            Column::Cpu => measures.cpu_s,
            Column::Throughput => measures.throughput_per_s,
            Column::P50 => measures.p50_ms,
            Column::P99 => measures.p99_ms,
            Column::Slope => measures.slope_bytes_per_h,
            Column::HealthMax => measures.health_max_ms,
            Column::Throttled => measures.throttled_s,
            Column::Typical => measures.typical_bytes,
            Column::Floor => measures.floor_bytes,
            Column::Cgroup => measures.cgroup_bytes,
        }
    }
}

/// Median and spread of a column over the complete runs of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Runs in which it was measured.
    pub n: u32,
    /// The median.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// Against the first variant; `None` for the first itself.
    pub versus_first: Option<Difference>,
}

/// A difference of medians to the first variant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// This variant's median minus the first one's.
    pub value: f64,
    /// 95 % bootstrap interval; `None` with fewer than two runs on a side (direction only).
    pub interval: Option<(f64, f64)>,
    /// How it is to be read; `None` without an interval.
    #[serde(default)]
    pub reading: Option<Reading>,
}

/// What a trial comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Which of the possible answers.
    pub kind: VerdictKind,
    /// The variant that it recommends.
    pub variant: Option<String>,
    /// The answer in one sentence.
    pub sentence: String,
}

/// The possible answers of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// One variant gives memory back that the first keeps.
    Recommend,
    /// The first variant keeps little above its baseline.
    NothingToGain,
    /// No variant is lower than the first.
    NoneHelps,
    /// What stays is in use by the program.
    LiveHeapGrows,
    /// Services that were watched hold the same.
    NoRealDifference,
    /// Too little was measured.
    NotEnough,
}
