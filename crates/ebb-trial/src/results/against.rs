//! What a trial says against an earlier one.
//!
//! Part of the layout of `results.json`, next to [`crate::results`].

use super::{Column, Difference};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A comparison with an earlier trial of the same workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Against {
    pub file: PathBuf,
    pub started: String,
    /// Version of the tool that did it.
    pub ebb_version: String,
    /// A change below this share is not called better or worse.
    pub threshold_share: f64,
    /// What is not the same about the machine, one line each.
    pub machine_differs: Vec<String>,
    /// What else a reader should know, one line each.
    pub notes: Vec<String>,
    /// The variants that both have.
    pub variants: Vec<Changes>,
    /// The changes for the worse that count.
    pub worse: Vec<String>,
    /// Whether both trials have runs enough to tell better from worse.
    pub enough: bool,
    pub sentence: String,
}

/// What changed for one variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    pub name: String,
    pub columns: BTreeMap<Column, Change>,
}

/// What changed in one figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The median of the earlier trial.
    pub before: f64,
    /// The median now.
    pub now: f64,
    /// Now minus before.
    pub difference: Difference,
    pub judgement: Judgement,
}

/// What a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// No real difference.
    Same,
    /// A real difference, smaller than the threshold.
    Small,
    /// Better by more than the threshold.
    Better,
    /// Worse by more than the threshold.
    Worse,
    /// Unclear: too few runs, too wide an interval, or a disturbed machine.
    Unclear,
}

impl Judgement {
    /// Label in tables and notes.
    pub fn label(self) -> &'static str {
        match self {
            Judgement::Same => "no real difference",
            Judgement::Small => "small",
            Judgement::Better => "better",
            Judgement::Worse => "worse",
            Judgement::Unclear => "unclear",
        }
    }
}
