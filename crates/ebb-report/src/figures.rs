//! Numbers as text. Memory is in MB (10^6 bytes) everywhere, as in the figures of `ebb`'s documents.

use ebb_diagnosis::facts::autoscale::Outcome;
use ebb_diagnosis::facts::growth::{EventKind, FloorStep};
use ebb_trial::results::Unit;

/// A figure without its unit, which the heading has.
pub fn plain(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes | Unit::BytesPerHour => decimals(value / 1e6),
        Unit::Count => format!("{value:.0}"),
        Unit::Seconds => format!("{value:.2}"),
        Unit::PerSecond | Unit::Milliseconds => decimals(value),
    }
}

/// A difference: with its sign, a true minus, and no "-0.0".
pub fn signed(value: f64, unit: Unit) -> String {
    let text = plain(value.abs(), unit);
    let is_zero = text.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    match (is_zero, value < 0.0) {
        (true, _) => format!("±{text}"),
        (false, true) => format!("\u{2212}{text}"),
        (false, false) => format!("+{text}"),
    }
}

/// Three digits or so: 3.14, 31.4, 314.2, 3142.
fn decimals(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        format!("{value:.0}")
    } else if size >= 10.0 || size == 0.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A length of time for a progress line or a heading.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

/// So many of what `noun` calls, which takes an s: "1 run", "5 runs".
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Bytes with their unit, for a sentence.
pub fn megabytes(bytes: f64) -> String {
    format!("{} MB", plain(bytes, Unit::Bytes))
}

/// Bytes of a machine's memory.
pub fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

/// A figure of a simulated autoscaler by its name.
pub type Figure = (&'static str, fn(&Outcome) -> String);

/// All figures of a simulated autoscaler, for trials and periods.
pub const FIGURES: [Figure; 4] = [
    ("replicas, mean (most)", |it| format!("{:.1} ({})", it.replicas, it.most)),
    ("replicas started", |it| it.started.to_string()),
    ("VPA request, MB (bounds)", |it| {
        let [request, lower, upper] =
            [it.vertical.request, it.vertical.lower, it.vertical.upper].map(|bytes| plain(bytes as f64, Unit::Bytes));
        format!("{request} ({lower} … {upper})")
    }),
    ("VPA restarts", |it| it.vertical.restarts.to_string()),
];

/// A step of a floor as a line; its time counts from the first look.
pub fn step_line(step: &FloorStep) -> String {
    step_at(step, &duration(step.at_s))
}

/// A step of a floor and the events before it, at a time in words.
pub fn step_at(step: &FloorStep, when: &str) -> String {
    let mb = |bytes: i64| format!("{:+.1}", bytes as f64 / 1e6);
    let events = match step.events.as_slice() {
        [] => String::new(),
        events => format!(", after {}", events.join(", ")),
    };
    format!("step of the floor at {when}: {} MB ({} to {}){events}", mb(step.bytes), mb(step.low), mb(step.high))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_a_sign_and_words() {
        for (text, expected) in [
            (plain(84_400_000.0, Unit::Bytes), "84.4"),
            (plain(3_142_000_000.0, Unit::Bytes), "3142"),
            (plain(0.314, Unit::PerSecond), "0.31"),
            (plain(23.1, Unit::Seconds), "23.10"),
            (signed(-316_000_000.0, Unit::Bytes), "\u{2212}316.0"),
            (signed(2_500_000.0, Unit::Bytes), "+2.50"),
            (signed(-400.0, Unit::Bytes), "±0.00"),
            (duration(59.6), "1 min 00 s"),
            (duration(3_725.0), "1 h 02 min"),
            (duration(7.2), "7 s"),
            (counted(0, "run"), "0 runs"),
            (counted(1, "run"), "1 run"),
        ] {
            assert_eq!(text, expected);
        }
    }
}
