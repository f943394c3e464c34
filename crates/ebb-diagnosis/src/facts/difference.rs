//! What changed between two snapshots.

use serde::{Deserialize, Serialize};

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
