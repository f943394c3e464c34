//! The figures of a run, and what they come to over the runs of a variant, by column of the table.

use crate::results::sureness::Reading;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

macro_rules! columns {
    ($($(#[$meta:meta])* $field:ident: $column:ident, $unit:ident, $label:literal;)+) => {
        /// The figures of one run.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
        pub struct Measures {
            $($(#[$meta])* pub $field: Option<f64>,)+
        }

        /// A column of the table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Column {
            $(#[doc = concat!("[`Measures::", stringify!($field), "`].")] $column,)+
        }

        impl Column {
            /// All columns in the order of the table.
            pub const ALL: &[Column] = &[$(Column::$column),+];

            /// Its heading.
            pub fn label(self) -> &'static str {
                match self {
                    $(Column::$column => $label,)+
                }
            }

            /// Its unit.
            pub fn unit(self) -> Unit {
                match self {
                    $(Column::$column => Unit::$unit,)+
                }
            }

            /// The figure of this column in a run.
            pub fn of(self, measures: &Measures) -> Option<f64> {
                match self {
                    $(Column::$column => measures.$field,)+
                }
            }
        }
    };
}

columns! {
    /// Memory at the end of the warm-up.
    baseline_bytes: Baseline, Bytes, "baseline";
    /// The highest sample.
    peak_bytes: Peak, Bytes, "peak";
    /// Memory at the end of the last rest.
    after_rest_bytes: AfterRest, Bytes, "after rest";
    /// After rest minus baseline.
    growth_bytes: Growth, Bytes, "growth";
    /// Bytes that malloc_trim returned at the end.
    reclaimable_bytes: Reclaimable, Bytes, "reclaimable";
    /// Live heap at the end of the last rest.
    live_bytes: Live, Bytes, "live heap";
    /// CPU time from readiness to the end of the last phase.
    cpu_s: Cpu, Seconds, "CPU s";
    /// The kernel's part of it.
    cpu_system_s: CpuSystem, Seconds, "system s";
    /// Page faults that needed no disk, in the same time.
    page_faults: PageFaults, Count, "page faults";
    /// Pages that were returned to the kernel and were touched again, in the same time.
    refaults: Refaults, Count, "refaults";
    /// Requests per second over the loaded phases.
    throughput_per_s: Throughput, PerSecond, "requests/s";
    /// Median latency.
    p50_ms: P50, Milliseconds, "p50 ms";
    /// 99th percentile of the latency.
    p99_ms: P99, Milliseconds, "p99 ms";
    /// Slope of the rests' floors, per hour.
    slope_bytes_per_h: Slope, BytesPerHour, "slope MB/h";
    /// The slowest answer of the health address under load.
    health_max_ms: HealthMax, Milliseconds, "health max ms";
    /// Time for which a CPU quota held the service back.
    throttled_s: Throttled, Seconds, "throttled s";
    /// The median of a window.
    #[serde(skip_serializing_if = "Option::is_none")]
    typical_bytes: Typical, Bytes, "median";
    /// The lowest of a window.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor_bytes: Floor, Bytes, "floor";
    /// The median of a window's cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup_bytes: Cgroup, Bytes, "cgroup";
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

impl Figure {
    /// Of the values of some runs or windows; `None` of nothing.
    pub(crate) fn of(values: &[f64], versus_first: Option<Difference>) -> Option<Figure> {
        Some(Figure {
            n: values.len() as u32,
            median: ebb_statistics::median(values)?,
            min: values.iter().copied().reduce(f64::min)?,
            max: values.iter().copied().reduce(f64::max)?,
            versus_first,
        })
    }
}

/// A difference of medians to the first variant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// This variant's median minus the first one's.
    pub value: f64,
    /// 95 % bootstrap interval; `None` with fewer than two runs on a side (direction only).
    pub interval: Option<(f64, f64)>,
    /// How it is to be read; `None` without an interval.
    pub reading: Option<Reading>,
}
