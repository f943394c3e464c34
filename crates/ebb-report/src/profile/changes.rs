//! What changed between two profiles, more than noise does.

use std::collections::BTreeMap;
use std::fmt::Write;

use ebb_process::profile::Profile;

use super::functions::own;
use super::shown::{DEPTH, cut, mb};
use crate::figures::signed;
use ebb_trial::results::Unit;

/// Standard deviations that noise rarely comes to.
const SURE: f64 = 3.0;

/// A stack that has more, or less, in the second of two profiles.
#[derive(Debug, serde::Serialize)]
pub struct Change {
    /// Bytes by which what is live grew.
    pub bytes: f64,
    /// The standard deviation of that.
    pub error_bytes: f64,
    /// Bytes in the first profile.
    pub before_bytes: f64,
    /// Functions, the innermost first.
    pub frames: Vec<String>,
}

/// An answer, and the stacks that changed meanwhile.
#[derive(Debug, serde::Serialize)]
pub struct WithStacks<'a, T> {
    /// The answer.
    #[serde(flatten)]
    pub all: &'a T,
    /// Nothing where the processes do not sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Vec<Change>>,
}

/// Stacks whose live bytes differ by more than noise does, the largest growth first. Stacks are the same by their
/// functions, so that the two may be of different processes and builds.
pub fn changes(before: &Profile, after: &Profile) -> Vec<Change> {
    let mut sums: BTreeMap<Vec<String>, [(f64, f64); 2]> = BTreeMap::new();
    for (side, profile) in [before, after].into_iter().enumerate() {
        for stack in &profile.stacks {
            let frames = own(profile, stack).iter().map(|line| line.function.clone()).collect();
            let sum = &mut sums.entry(frames).or_default()[side];
            sum.0 += stack.live.bytes;
            sum.1 += stack.live.error(profile.interval as f64).powi(2);
        }
    }
    let mut changes: Vec<Change> = sums
        .into_iter()
        .map(|(frames, [before, after])| Change {
            bytes: after.0 - before.0,
            error_bytes: (before.1 + after.1).sqrt(),
            before_bytes: before.0,
            frames,
        })
        .filter(|it| it.bytes.abs() > SURE * it.error_bytes && it.bytes.abs() >= 1.0)
        .collect();
    changes.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    changes
}

/// What grew, and what shrank: the first `most`.
pub fn render_changes(before: &Profile, after: &Profile, most: usize, columns: usize) -> String {
    let changes = changes(before, after);
    let [from, to] = [before, after].map(|it| it.total().1.bytes);
    let grew = signed(to - from, Unit::Bytes);
    let mut out = format!("{} and {} MB live by samples, {grew} MB\n", mb(from), mb(to));
    if changes.is_empty() {
        out += "no stack grew or shrank by more than three times its sampling error\n";
    }
    for change in changes.iter().take(most) {
        let _ = writeln!(
            out,
            "\n{} MB ±{} (from {})",
            signed(change.bytes, Unit::Bytes),
            mb(change.error_bytes),
            mb(change.before_bytes)
        );
        for name in change.frames.iter().take(DEPTH) {
            let _ = writeln!(out, "  {}", cut(name, columns.saturating_sub(2)));
        }
    }
    if changes.len() > most {
        let _ = writeln!(out, "\nand {} smaller changes", changes.len() - most);
    }
    out
}
