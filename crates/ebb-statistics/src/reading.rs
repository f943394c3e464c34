//! How a difference is to be read, by its interval. For trials and for `ebb diff`.

use serde::{Deserialize, Serialize};

/// How a difference is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// Its interval does not include 0, and it reaches beyond what is too small to matter.
    Real,
    /// Its whole interval is too small to matter.
    NoRealDifference,
    /// Its interval includes 0 and reaches beyond that: more runs are needed to tell.
    Unclear,
}

impl Reading {
    /// Of an interval, where differences up to `small` do not matter.
    pub fn of((low, high): (f64, f64), small: f64) -> Self {
        if low >= -small && high <= small {
            Reading::NoRealDifference
        } else if low <= 0.0 && high >= 0.0 {
            Reading::Unclear
        } else {
            Reading::Real
        }
    }

    /// In words, where the figure alone would be read as a difference.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Reading::Real => None,
            Reading::NoRealDifference => Some("no real difference"),
            Reading::Unclear => Some("unclear"),
        }
    }
}
