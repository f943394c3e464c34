//! What a fleet held over a time, and what that comes to by workload.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Values on a grid of times; not known between them where nothing was set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    first: usize,
    /// NaN where not known. Half the room of f64, and sizes of 100 MB are right to 8 bytes.
    values: Vec<f32>,
}

impl Course {
    /// Sets the value of a time.
    pub fn set(&mut self, at: usize, value: f64) {
        if self.values.is_empty() {
            self.first = at;
        }
        if let Some(before) = self.first.checked_sub(at).filter(|before| *before > 0) {
            self.values.splice(0..0, std::iter::repeat_n(f32::NAN, before));
            self.first = at;
        }
        let index = at - self.first;
        if index >= self.values.len() {
            self.values.resize(index + 1, f32::NAN);
        }
        self.values[index] = value as f32;
    }

    /// The value of a time.
    pub fn at(&self, at: usize) -> Option<f64> {
        let value = self.values.get(at.checked_sub(self.first)?)?;
        (!value.is_nan()).then_some(f64::from(*value))
    }

    /// The known values with their times.
    pub fn points(&self) -> impl DoubleEndedIterator<Item = (usize, f64)> {
        let known = self.values.iter().enumerate().filter(|(_, value)| !value.is_nan());
        known.map(|(index, value)| (self.first + index, f64::from(*value)))
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// A container, a unit or another leaf cgroup: one life of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The row that it counts in.
    pub name: String,
    /// The node that it ran on.
    pub node: String,
    /// The allocators that it ran on.
    pub allocators: Vec<String>,
    /// Memory that is charged to it.
    pub usage: Course,
    /// Memory that is freed and held, and would be returned.
    pub returnable: Course,
    /// Live bytes of its heaps.
    pub live: Course,
    /// How often its heaps were read.
    pub looks: f64,
    /// Memory that is reserved for it.
    pub request_bytes: Option<f64>,
}

/// Something that happened in a row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The row.
    pub name: String,
    /// Its time on the grid.
    pub at: usize,
    /// How often.
    pub count: f64,
}

/// Who serves the `malloc` of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InCharge {
    /// Containers now.
    pub containers: usize,
    /// Those of them whose preloaded allocator does not serve.
    pub not: usize,
    /// The first and the last time at which ebbmalloc served.
    pub ebbmalloc: Option<(usize, usize)>,
}

/// What a fleet held.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The first time, in seconds since 1970.
    pub from_s: f64,
    /// Time between two values.
    pub step_s: f64,
    /// Times of the grid.
    pub times: usize,
    /// All that ran.
    pub groups: Vec<Group>,
    /// Kills for lack of memory.
    pub oom_kills: Vec<Event>,
    /// Replicas that were asked for, by row.
    pub replicas: BTreeMap<String, Course>,
    /// Who serves `malloc`, by row.
    pub in_charge: BTreeMap<String, InCharge>,
    /// What could not be read.
    pub cautions: Vec<String>,
}

/// A figure with its 95 % interval, where there are enough parts for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The figure.
    pub bytes: f64,
    /// Lower and upper end.
    pub interval: Option<(f64, f64)>,
}

/// What a price makes of it, per hour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Money {
    /// Once requests are what containers need without their returnable memory.
    pub per_hour: f64,
    /// The part of it that lower requests alone would bring.
    pub without_change_per_hour: f64,
    /// Containers whose request is known.
    pub containers: usize,
}

/// A row: one workload, or all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The workload.
    pub name: String,
    /// Containers, counting each life.
    pub containers: usize,
    /// Nodes that it ran on.
    pub nodes: usize,
    /// Allocators.
    pub allocators: Vec<String>,
    /// (a) Returnable memory, the mean over the time.
    pub mean: Figure,
    /// (b) By how much the highest usage of each container would be lower, summed.
    pub own_peaks: Figure,
    /// Returnable at the highest usage of each container, summed.
    pub at_own_peaks_bytes: f64,
    /// (c) By how much the highest usage of each node would be lower, summed.
    pub node_peaks: Figure,
    /// Kills for lack of memory.
    pub oom_kills: f64,
    /// ... while it held.
    pub oom_kills_holding: f64,
    /// Times at which more replicas were asked for.
    pub scale_outs: usize,
    /// ... while it held.
    pub scale_outs_holding: usize,
    /// The part of the time with data.
    pub share_of_time: f64,
    /// The part of the memory, over time, whose heaps were looked at.
    pub share_looked: f64,
    /// Looks at its heaps.
    pub looks: f64,
    /// Money, where there is a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saving: Option<Money>,
    /// Returnable memory over time, for the page.
    #[serde(skip)]
    pub course: Vec<(f64, f64)>,
}

/// All rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// The answer.
    pub sentence: String,
    /// Beginning of the time, in seconds since 1970.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// Time between two values; shorter peaks may be missed.
    pub step_s: f64,
    /// The highest usage of each node, summed.
    pub node_peaks_bytes: f64,
    /// All workloads changed at once.
    pub all: Row,
    /// By mean returnable memory.
    pub rows: Vec<Row>,
    /// What speaks against the figures.
    pub cautions: Vec<String>,
}

/// Why a workload is on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Its live heap grows.
    LiveHeapGrows,
    /// The allocator that it was given does not serve it.
    NotInCharge,
    /// It held little while ebbmalloc was in charge, and holds again.
    RetentionIsBack,
}

/// A workload to look after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// The workload.
    pub name: String,
    /// Why.
    pub reason: Reason,
    /// The figures.
    pub evidence: String,
    /// What to do.
    pub next: String,
}
