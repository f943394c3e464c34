//! The facts of one trial: what was run, what was measured, what it comes to.
//!
//! This is also the layout of `results.json` (`docs/json.md` explains the fields that need it). A value that
//! was not measured is `None` (`null`), never 0. Bytes are bytes, `_s` are seconds, `_ms` milliseconds.

#![allow(missing_docs, reason = "their names say it; docs/json.md has the rest")]

use ebb_allocators::Decay;
use ebb_diagnosis::facts::autoscale;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub mod against;
mod findings;
mod measures;
mod run;
pub mod sureness;

use against::Against;
use sureness::{Stopping, Trap, Tuned};

pub use findings::{FreeMemory, Placebos, Remains};
pub use measures::{Column, Difference, Figure, Measures, Summary, Unit};
pub use run::{
    HealthAnswer, Live, LoadResult, Mark, Oom, Outcome, PhaseKind, PhaseSpan, Quantiles, Restart, Run, Sample, Trim,
};

/// The version of the layout; raised when a field changes its meaning or goes.
pub const FORMAT: u32 = 1;

/// A whole trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Version of this layout, [`FORMAT`].
    pub format: u32,
    pub ebb_version: String,
    /// When the trial began, UTC, RFC 3339.
    pub started: String,
    pub seconds: f64,
    pub workload: Workload,
    pub machine: Machine,
    /// Requested runs per variant.
    pub repetitions: u32,
    pub interval_ms: u64,
    /// Which memory the table's figures are.
    pub metric: Metric,
    /// What the service of each run was held to.
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub max_rest: Vec<MaxRest>,
    /// Ctrl-C came before the end.
    pub interrupted: bool,
    /// In the order in which they were requested; the first is what the others are compared to.
    pub variants: Vec<Variant>,
    pub verdict: Verdict,
    /// How it stopped, where it repeated until it was sure.
    pub stopping: Option<Stopping>,
    /// What may mislead in it.
    #[serde(default)]
    pub traps: Vec<Trap>,
    /// What it says against an earlier trial.
    pub against: Option<Against>,
    /// What it says of the settings of one allocator.
    pub tuned: Option<Tuned>,
    /// Services were watched that ran already, not started for the trial.
    pub canary: Option<Canary>,
    /// Settings of glibc's malloc that change nothing here.
    #[serde(default)]
    pub placebos: Option<Placebos>,
    /// What no allocator changes, and the limit that would be enough.
    #[serde(default)]
    pub remains: Option<Remains>,
    /// What autoscalers would have done, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<Autoscale>,
}

/// The same autoscaler for each variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Autoscale {
    pub settings: autoscale::Settings,
    /// By the variant's name: of its complete runs the one with the middle number of replicas.
    pub variants: BTreeMap<String, autoscale::Outcome>,
}

impl Trial {
    /// Whether the verdict recommends the variant of this name.
    pub fn recommends(&self, name: &str) -> bool {
        self.verdict.variant.as_deref() == Some(name)
    }
}

/// How services that ran already were watched.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    pub every_s: f64,
    /// Windows that the time is cut into; the figures are of windows, as those of a trial are of runs.
    pub windows: u32,
    pub window_s: f64,
}

/// The workload as it was run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    pub name: String,
    pub description: String,
    /// The image or unpacked root that the service ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub profile: Option<String>,
    pub vars: BTreeMap<String, String>,
    /// The number of rounds of each cycle after the profile.
    pub cycles: BTreeMap<String, u32>,
    /// Digest of everything that drives the service.
    pub digest: Option<String>,
}

/// The machine that the trial ran on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: Option<String>,
    /// Processors that this process may use.
    pub processors: Option<usize>,
    pub memory_bytes: Option<u64>,
    pub kernel: Option<String>,
    pub thp: Option<String>,
    pub system: Option<String>,
    /// What a page costs that is touched for the first time, as it was measured when the trial was over.
    pub page_fault_s: Option<f64>,
    /// What it costs to return a page to the kernel, measured with it, while another thread of the program runs.
    pub page_return_s: Option<f64>,
}

/// What the service of each run was held to by a cgroup of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory, swap included.
    pub memory_max_bytes: Option<u64>,
    pub cpus: Option<f64>,
}

/// A variant against what it may hold after the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MaxRest {
    pub variant: String,
    /// What it may hold.
    pub max_bytes: u64,
    /// What it holds; `None` where it never came to its rest.
    pub after_rest_bytes: Option<u64>,
    /// Whether that is no more, and no run was killed on its way there.
    pub kept: bool,
}

/// A kind of memory figure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Resident pages, summed over the processes: shared pages count in each.
    #[default]
    Rss,
    /// Resident pages, shared ones divided by the number of their users.
    Pss,
    /// Anonymous resident pages: heap, stacks, arenas.
    Anon,
    /// What is charged to the cgroup: of replicas that a Prometheus knows.
    Charge,
}

impl Metric {
    /// Its name in reports.
    pub fn label(self) -> &'static str {
        match self {
            Metric::Rss => "RSS",
            Metric::Pss => "PSS",
            Metric::Anon => "anonymous memory",
            Metric::Charge => "memory charged to each replica",
        }
    }

    /// The figure of this kind in a sample.
    pub fn of(self, sample: &Sample) -> Option<u64> {
        match self {
            Metric::Rss => sample.rss_bytes,
            Metric::Pss => sample.pss_bytes,
            Metric::Anon => sample.anon_bytes,
            Metric::Charge => sample.cgroup_bytes,
        }
    }
}

/// One variant: an allocator with its settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    pub name: String,
    /// The allocator: `glibc` where nothing is preloaded.
    pub allocator: String,
    /// What was preloaded.
    pub library: Option<PathBuf>,
    /// A library preloaded together with the allocator; such a variant is a reference, never recommended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<PathBuf>,
    /// The program brings the allocator itself.
    #[serde(default)]
    pub linked: bool,
    /// Started instead of the workload's service; as in the workload's file, a template.
    pub command: Option<Vec<String>>,
    /// The environment that makes it this variant, without the preload.
    pub env: BTreeMap<String, String>,
    /// malloc_trim was called in it once from outside, when its last rest began; such a variant is a reference too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trim_once: bool,
    /// When it means to give idle memory back, where its settings tell.
    pub decay: Option<Decay>,
    /// Why it could not be run at all (not installed, with the package that has it).
    pub unavailable: Option<String>,
    pub runs: Vec<Run>,
    /// Summary of the complete runs; `None` if there is none.
    pub summary: Option<Summary>,
}

impl Variant {
    /// A variant without settings, before anything was found for it or run.
    pub fn new(name: &str, allocator: &str) -> Variant {
        Variant { name: name.to_owned(), allocator: allocator.to_owned(), ..Variant::default() }
    }

    /// Whether it shows what is possible and cannot be deployed, so it is never recommended.
    pub fn is_reference(&self) -> bool {
        self.beside.is_some() || self.trim_once
    }

    /// The figure of a column over the complete runs.
    pub fn figure(&self, column: Column) -> Option<&Figure> {
        self.summary.as_ref()?.figures.get(&column)
    }

    /// The median of a column over the complete runs.
    pub fn median(&self, column: Column) -> Option<f64> {
        self.figure(column).map(|figure| figure.median)
    }

    /// What was preloaded, in the loader's order.
    pub fn preloaded(&self) -> Vec<&Path> {
        self.library.iter().chain(&self.beside).map(PathBuf::as_path).collect()
    }

    /// The text for an empty list.
    pub fn without_preload(&self) -> String {
        let inside = self.linked.then(|| format!(": {} is in the program", self.allocator));
        format!("nothing{}", inside.unwrap_or_default())
    }

    /// What was started instead of the workload's service, with the workload's values; what each run gives anew, such
    /// as `{port}`, stays a name.
    pub fn command_line(&self, workload: &Workload) -> Option<String> {
        let line = self.command.as_ref()?.join(" ");
        let vars = workload.vars.iter();
        Some(vars.fold(line, |line, (name, value)| line.replace(&format!("{{{name}}}"), value)))
    }

    /// The runs that count.
    pub fn complete(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.outcome == Outcome::Complete)
    }

    /// Whether other programs took processors from a complete run.
    pub fn has_disturbed_times(&self) -> bool {
        self.complete().any(|run| run.disturbance.of_times())
    }

    /// Whether the machine was short of memory during a complete run.
    pub fn has_disturbed_memory(&self) -> bool {
        self.complete().any(|run| run.disturbance.of_memory())
    }

    /// Whether a load of a complete run said nothing that could be read.
    pub fn has_unread_loads(&self) -> bool {
        let mut spans = self.complete().flat_map(|run| &run.phases);
        spans.any(|span| span.kind.counts() && span.load.is_none())
    }
}

/// Verdict of a trial.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub kind: VerdictKind,
    pub variant: Option<String>,
    pub sentence: String,
}

impl Verdict {
    pub(crate) fn without_variant(kind: VerdictKind, sentence: String) -> Verdict {
        Verdict { kind, variant: None, sentence }
    }

    pub(crate) fn not_enough(reason: &str) -> Verdict {
        Verdict::without_variant(VerdictKind::NotEnough, format!("Not enough evidence: {reason}."))
    }
}

/// The possible answers of a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    #[default]
    NotEnough,
}
