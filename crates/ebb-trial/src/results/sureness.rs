//! How sure the figures of a trial are, and what speaks against them: how a difference is to be read,
//! why the trial stopped, what else the machine did, traps.
//!
//! Part of the layout of `results.json`.

use serde::{Deserialize, Serialize};

pub use ebb_statistics::Reading;

/// How a trial that repeats until it is sure came to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stopping {
    pub end: StopReason,
    /// Wanted width, as a share of the first variant's memory after the rest.
    pub wanted_share: f64,
    pub wanted_bytes: Option<f64>,
    /// The width of the widest interval of the memory after the rest.
    pub reached_bytes: Option<f64>,
    /// Whose interval that is.
    pub widest: Option<String>,
    /// Repetitions of every variant that still ran.
    pub repetitions: u32,
    /// Time that was allowed.
    pub budget_s: f64,
}

/// Why a trial stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Every interval is narrow enough.
    Sure,
    /// One more repetition would not have fitted into the time allowed.
    Budget,
    /// The maximum number of repetitions was reached.
    MostRepetitions,
    /// Fewer than two variants were left to compare.
    NothingToCompare,
    /// Ctrl-C.
    Interrupted,
}

/// Load of other programs on the machine during one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Processor time of programs that are not part of the trial, stolen time included, as a share of
    /// all processors: over the whole run, or over its phases with load where that is more.
    pub others_cpu_share: Option<f64>,
    /// Share of the time in which some task of the machine waited for memory.
    pub memory_pressure_share: Option<f64>,
}

/// From this share of the processors on other programs are felt: on two cores a fifth of one.
const DISTURBED_CPU: f64 = 0.10;
/// Waiting for memory means that the kernel takes pages away, which lowers the very figure measured.
const DISTURBED_MEMORY: f64 = 0.01;

impl Disturbance {
    /// Whether processors were short: times are not to be trusted.
    pub fn of_times(&self) -> bool {
        self.others_cpu_share.is_some_and(|share| share >= DISTURBED_CPU)
    }

    /// Whether memory was short: resident memory is not to be trusted.
    pub fn of_memory(&self) -> bool {
        self.memory_pressure_share.is_some_and(|share| share >= DISTURBED_MEMORY)
    }
}

/// What a search over an allocator's settings says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuned {
    pub allocator: String,
    /// The variants that gave a figure, the lowest after the rest first.
    pub order: Vec<String>,
    /// How much the settings matter, in one sentence.
    pub sentence: String,
}

/// A way in which a trial can mislead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trap {
    pub kind: TrapKind,
    /// The variant that it is about; nothing where it is about all.
    pub variant: Option<String>,
    /// What was seen and what it does to the figures.
    pub sentence: String,
    pub remedy: String,
}

/// The traps that are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrapKind {
    /// An instrument is switched on in the service.
    Instrumented,
    /// An interpreter built for debugging.
    DebugBuild,
    /// The load has one request under way at a time.
    OneStream,
    /// No rest after a load.
    NoIdlePhase,
    /// The rest ends before the variant's decay.
    RestTooShort,
    /// The variant is set never to give memory back.
    NeverReturns,
    /// A variant's allocator was not in charge.
    DidNotLoad,
}

impl TrapKind {
    /// Its name in reports.
    pub fn label(self) -> &'static str {
        match self {
            TrapKind::Instrumented => "instrumented service",
            TrapKind::DebugBuild => "debug build",
            TrapKind::OneStream => "one stream only",
            TrapKind::NoIdlePhase => "no idle phase",
            TrapKind::RestTooShort => "rest too short",
            TrapKind::NeverReturns => "never returns",
            TrapKind::DidNotLoad => "did not load",
        }
    }
}
