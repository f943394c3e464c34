//! What several looks at the same target tell: what changed between two; what grows over many, how fast, and how sure
//! that is.

use serde::{Deserialize, Serialize};

use super::diagnosis::{Diagnosis, Verdict};
use ebb_statistics::slope::Slope;

/// One look, in sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the first look.
    pub at_s: f64,
    /// Live blocks of malloc, where all heaps were read.
    pub live: Option<u64>,
    /// Freed, and held by the allocator, where all heaps were read.
    pub held: Option<u64>,
    /// Other anonymous memory: runtimes' heaps, heaps that were not read, memory in swap.
    pub other: u64,
    /// Shared memory.
    pub shared: u64,
    /// All memory of the processes.
    pub total: u64,
    /// Free pages that malloc_trim would return, where all processes are on glibc and their heaps were read.
    #[serde(default)]
    pub trimmable: Option<u64>,
    /// CPU seconds that the processes have used since they started.
    pub cpu_s: f64,
    /// Bytes that they have read and written, where that may be read.
    pub io_bytes: Option<u64>,
}

/// A thing that may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Series {
    /// [`Point::live`].
    Live,
    /// [`Point::held`].
    Held,
    /// [`Point::other`].
    Other,
    /// [`Point::shared`].
    Shared,
    /// [`Point::total`].
    Total,
}

/// One thing over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    /// The series.
    pub series: Series,
    /// Its lowest in the first part of the time.
    pub from: u64,
    /// Its lowest in the last part.
    pub to: u64,
    /// How fast the floors move; absent with too few of them.
    pub slope: Option<Slope>,
    /// Whether it grows beyond doubt, by an amount that matters, and up to the end.
    pub grows: bool,
    /// Whether it rose by such an amount and is flat in the last third of the time.
    #[serde(default)]
    pub settled: bool,
}

/// A change of the floor of all memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FloorStep {
    /// Seconds since the first look.
    pub at_s: f64,
    /// By how many bytes it rose, or fell.
    pub bytes: i64,
    /// Lower end of the 95 % interval.
    pub low: i64,
    /// Upper end.
    pub high: i64,
    /// Labels of the events shortly before it, without repetition.
    pub events: Vec<String>,
}

/// Something that happened: of a file of events, or seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Seconds since the first look.
    pub at_s: f64,
    /// What happened.
    pub label: String,
}

/// All events of one label, and the rises of the floor that followed one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventKind {
    /// The label.
    pub label: String,
    /// How many there were during the watch.
    pub count: usize,
    /// Rises of the floor shortly after one.
    pub rises: usize,
    /// As many rises were expected if they had nothing to do with it.
    pub expected: f64,
    /// Whether that many rises are no chance (5 %, over all labels together).
    pub more_than_chance: bool,
}

/// Whether the growth depends on load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadDependence {
    /// It grows while there is work and not while there is none: not a steady leak.
    OnlyWithLoad,
    /// It grows while there is work and while there is none.
    WithAndWithoutLoad,
    /// There was work all the time.
    AlwaysLoad,
    /// There was no work worth the name.
    NoLoad,
}

/// Rests after bursts at which malloc_trim would have returned memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rests {
    /// Each of them, by time.
    pub rests: Vec<Rest>,
    /// The median of what it would have returned.
    pub median_bytes: u64,
    /// The command that does it.
    pub next: Option<String>,
}

/// The first idle look after a burst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rest {
    /// Seconds since the first look.
    pub at_s: f64,
    /// What malloc_trim would have returned then.
    pub trimmable: u64,
}

/// The answer of `ebb why --watch`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// The verdict.
    pub verdict: Verdict,
    /// What grows and what does not.
    pub trends: Vec<Trend>,
    /// Whether the growth depends on load, if something grows.
    pub company: Option<LoadDependence>,
    /// Steps of the floor of all memory, by time.
    #[serde(default)]
    pub steps: Vec<FloorStep>,
    /// The events after which the floor rose, the likeliest cause first.
    #[serde(default)]
    pub events: Vec<EventKind>,
    /// Where a trim would have helped.
    #[serde(default)]
    pub rests: Option<Rests>,
    /// Every look.
    pub points: Vec<Point>,
    /// The last look in full.
    pub last: Diagnosis,
}

/// The answer of `ebb diff`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The result in one sentence.
    pub sentence: String,
    /// Seconds between both looks, where they are of one boot.
    pub seconds: Option<f64>,
    /// What changed, the largest growth first.
    pub changes: Vec<Change>,
    /// What makes the two hard to compare: another process, another machine.
    pub cautions: Vec<String>,
    /// The command to type next.
    pub next: Option<String>,
}

/// One figure, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Name of the figure that changed.
    pub what: String,
    /// What it is measured in.
    pub unit: Unit,
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things.
    Count,
}

impl Change {
    /// The growth.
    pub fn growth(&self) -> i64 {
        self.after as i64 - self.before as i64
    }
}
