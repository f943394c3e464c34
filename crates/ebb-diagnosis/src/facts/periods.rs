//! What two periods of a recording tell: levels, drift, time near the limit, kills, restarts.

use crate::facts::autoscale::{Outcome, Settings};
use ebb_statistics::Reading;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Two periods of one service. Memory is that of one replica, the mean of all that were there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The target of the second period.
    pub target: String,
    /// The answer.
    pub sentence: String,
    /// The first period.
    pub before: Period,
    /// The second.
    pub after: Period,
    /// Length of the windows that give the levels.
    pub window_s: f64,
    /// Whether windows of the same hour of the day were compared.
    pub same_hours: bool,
    /// The levels of both.
    pub levels: Vec<Level>,
    /// For how long from the beginning of `after` its typical memory stayed on the far side of half the change; absent where
    /// there is no real change.
    pub sustained_s: Option<f64>,
    /// What speaks against the figures.
    pub cautions: Vec<String>,
    /// What autoscalers would have done, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<Autoscaled>,
}

/// The same autoscaler in both periods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Autoscaled {
    /// What it was set to.
    pub settings: Settings,
    /// In the first period.
    pub before: Outcome,
    /// In the second.
    pub after: Outcome,
}

/// A part of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// The target, as it was typed last.
    pub target: String,
    /// Time of its first record.
    pub from: Timestamp,
    /// Time of its last record.
    pub to: Timestamp,
    /// Seconds between both.
    pub seconds: f64,
    /// Records.
    pub records: usize,
    /// Seconds for which nothing ran.
    pub absent_s: f64,
    /// Seconds for which nothing was recorded.
    pub gaps_s: f64,
    /// What served the `malloc` of the first processes, the most frequent first.
    pub allocators: Vec<String>,
    /// Replicas: the mean, and the most.
    pub replicas: f64,
    /// The largest number of replicas.
    pub most_replicas: usize,
    /// The highest memory of one replica; absent where none could be read.
    pub highest: Option<u64>,
    /// How fast the floor rises in the longest life of one replica.
    pub drift: Option<Drift>,
    /// The share of the records with a limit at which more than 90 % of it was used; absent without a limit.
    pub near_limit: Option<f64>,
    /// Processes that the kernel killed for memory; absent where it does not say.
    pub oom_kills: Option<u64>,
    /// Processes that took the place of one that ended.
    pub restarts: u64,
}

/// A rise of the floor, in bytes per day.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Per day.
    pub per_day: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Seconds for which that replica was seen.
    pub life_s: f64,
}

/// A figure of each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// The median.
    Typical,
    /// The lowest.
    Floor,
    /// The highest.
    Peak,
}

/// A figure in both periods, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The figure.
    pub figure: Figure,
    /// Its level before, at the hours that both periods have.
    pub before: f64,
    /// The same after.
    pub after: f64,
    /// The change.
    pub change: f64,
    /// The ends of the 99 % interval of the change: three figures are tried; absent with too few windows.
    pub interval: Option<(f64, f64)>,
    /// How the change is to be read; absent without an interval.
    pub reading: Option<Reading>,
}

impl Level {
    /// Part of the level before.
    pub fn share(&self, bytes: f64) -> f64 {
        if self.before > 0.0 { bytes / self.before } else { 0.0 }
    }

    /// Whether the change is real.
    pub fn is_real(&self) -> bool {
        self.reading == Some(Reading::Real)
    }
}
