//! An assignment of a script.

use std::ops::Range;

/// An assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// The variable.
    pub name: String,
    /// What the script adds to it; none where the shell fills that in.
    pub value: Option<String>,
    /// Whether the variable's old value is part of the new one.
    pub inherits: bool,
    /// Where the assignment begins.
    pub from: usize,
    /// Place of the value, quotes included.
    pub at: Range<usize>,
    /// Counted from one.
    pub line: usize,
    /// Whether it always counts: outside of conditions, functions and subshells, and before the program starts.
    pub is_plain: bool,
    /// Whether programs get it.
    pub is_exported: bool,
    /// Whether its command sets nothing else.
    pub is_alone: bool,
    /// Whether it comes after the program's start.
    pub(super) is_late: bool,
}
