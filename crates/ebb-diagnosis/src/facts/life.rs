//! The phases of a program's life: what each left, and what that is not.

use serde::{Deserialize, Serialize};

/// The answer of `ebb diff` on a file of marked points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Life {
    /// The result in one sentence.
    pub sentence: String,
    /// The marked points, in order.
    pub phases: Vec<Phase>,
    /// What makes them hard to compare.
    pub cautions: Vec<String>,
}

/// The phase that ends at one marked point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Its label.
    pub label: String,
    /// Seconds since the first point, where both are of one boot.
    pub at_s: Option<f64>,
    /// All memory of the processes.
    pub total: u64,
    /// What it left; absent at the first point.
    pub left: Option<Left>,
}

/// What changed in a phase, in bytes. What could not be read at one of its ends is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// All memory of the processes.
    pub total: i64,
    /// Live blocks of malloc and live objects of the interpreter.
    pub live: Option<i64>,
    /// Freed, and held by the allocator or the interpreter.
    pub held: Option<i64>,
    /// Kinds of memory that may explain it.
    pub suspects: Vec<Suspect>,
}

/// A kind of memory that may explain what a phase left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suspect {
    /// Its name.
    pub what: String,
    /// Its change; absent where it is not known.
    pub bytes: Option<i64>,
    /// The change of the number of things, if they are counted.
    pub count: Option<i64>,
    /// What is counted, as a noun in the plural.
    pub counted: Option<String>,
    /// Whether it is known and too small to explain what the phase left.
    pub ruled_out: bool,
}
