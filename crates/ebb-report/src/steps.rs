//! Steps of a floor and the events before them, as lines of a report.

use super::figures::duration;
use ebb_diagnosis::facts::growth::{EventKind, FloorStep};

/// A step; its time counts from the first look.
pub fn step_line(step: &FloorStep) -> String {
    step_at(step, &duration(step.at_s))
}

/// A step at a time in words.
pub fn step_at(step: &FloorStep, when: &str) -> String {
    let mb = |bytes: i64| format!("{:+.1}", bytes as f64 / 1e6);
    let events = match step.events.as_slice() {
        [] => String::new(),
        events => format!(", after {}", events.join(", ")),
    };
    format!(
        "step of the floor at {when}: {} MB ({} to {}){events}",
        mb(step.bytes),
        mb(step.low),
        mb(step.high)
    )
}

/// The kinds of event that raise the floor.
pub fn cause_lines(kinds: &[EventKind]) -> impl Iterator<Item = String> {
    kinds.iter().filter(|kind| kind.more_than_chance).map(|kind| {
        format!(
            "the floor rises after {} more often than by chance: {} rises, {:.1} expected",
            kind.label, kind.rises, kind.expected
        )
    })
}
