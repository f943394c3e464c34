//! The figures of a run, and what they come to over the runs of a variant, by column of the table.

use crate::results::sureness::Reading;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Bytes that malloc_trim returned at the end.
    pub reclaimable_bytes: Option<f64>,
    /// Live heap at the end of the last rest.
    pub live_bytes: Option<f64>,
    /// CPU time from readiness to the end of the last phase.
    pub cpu_s: Option<f64>,
    /// The kernel's part of it.
    #[serde(default)]
    pub cpu_system_s: Option<f64>,
    /// Page faults that needed no disk, in the same time.
    #[serde(default)]
    pub page_faults: Option<f64>,
    /// Pages that were returned to the kernel and were touched again, in the same time.
    #[serde(default)]
    pub refaults: Option<f64>,
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
    /// [`Measures::cpu_system_s`].
    CpuSystem,
    /// [`Measures::page_faults`].
    PageFaults,
    /// [`Measures::refaults`].
    Refaults,
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
    /// A number of things.
    Count,
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
    pub const ALL: [Column; 19] = [
        Column::Baseline,
        Column::Peak,
        Column::AfterRest,
        Column::Growth,
        Column::Reclaimable,
        Column::Live,
        Column::Cpu,
        Column::CpuSystem,
        Column::PageFaults,
        Column::Refaults,
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
            Column::CpuSystem => "system s",
            Column::PageFaults => "page faults",
            Column::Refaults => "refaults",
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
            Column::Cpu | Column::CpuSystem | Column::Throttled => Unit::Seconds,
            Column::PageFaults | Column::Refaults => Unit::Count,
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
            Column::CpuSystem => measures.cpu_system_s,
            Column::PageFaults => measures.page_faults,
            Column::Refaults => measures.refaults,
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
