//! What a variant costs against the first, in words: CPU time, throughput, p99.
//!
//! Used by `verdict`, `tuning`, `choice` and `canary`. Pure. A claim about time needs a quiet machine and an
//! interval: without the first the cost is unknown, and what an interval does not show is called unclear.

use super::summary;
use crate::results::sureness::Reading;
use crate::results::{Column, Difference, Figure, Summary, Variant};

/// Differences below this are not mentioned where one run is all there is.
const COST_SHARE: f64 = 0.05;
/// The columns that are costs, in the order of the sentence.
const COSTS: [(Column, &str); 3] =
    [(Column::Cpu, "CPU time"), (Column::Throughput, "throughput"), (Column::P99, "p99")];
/// Said instead of a cost that other programs may have changed.
pub const DISTURBED: &str = "cost unknown: disturbed";

/// Bytes in whole MB.
pub(crate) fn megabytes(bytes: f64) -> String {
    format!("{:.0} MB", bytes / 1e6)
}

/// Whether other programs took processors from a run that counts: then no time of the trial is to be trusted.
pub fn is_disturbed(variants: &[Variant]) -> bool {
    variants.iter().any(Variant::has_disturbed_times)
}

/// Continues a sentence about a variant's memory with what the variant costs against the first.
pub fn in_words(summary: &Summary, disturbed: bool) -> String {
    let known: Vec<(Column, &str, Share)> = COSTS
        .into_iter()
        .filter_map(|(column, name)| {
            let figure = summary.figures.get(&column)?;
            Some((column, name, Share::of(column, figure)?))
        })
        .collect();
    if known.is_empty() {
        return String::new();
    }
    if disturbed {
        return format!("; {DISTURBED}");
    }
    if known.iter().all(|(_, _, share)| share.interval.is_none()) {
        return of_one_run(&known);
    }
    let with = |wanted: Reading, words: fn(Column, &str, &Share) -> String| -> Vec<String> {
        known
            .iter()
            .filter(|(_, _, share)| share.reading == Some(wanted))
            .map(|(column, name, share)| words(*column, name, share))
            .collect()
    };
    let named = |_: Column, name: &str, share: &Share| format!("{name}{}", share.interval_in_words());
    let real = with(Reading::Real, |column, name, share| {
        format!("{}{}", change_in_words(column, name, share.value), share.interval_in_words())
    });
    let (same, unclear) = (with(Reading::NoRealDifference, named), with(Reading::Unclear, named));
    if real.is_empty() && unclear.is_empty() {
        let bare = known.iter().map(|(_, name, share)| {
            let (low, high) = share.interval.unwrap_or_default();
            format!("{name} {} … {} %", signed(low), signed(high))
        });
        return format!(", at no measurable cost ({})", bare.collect::<Vec<_>>().join(", "));
    }
    let mut text = String::new();
    for (lead, words) in [(", with ", real), ("; no real difference: ", same), ("; unclear: ", unclear)] {
        if !words.is_empty() {
            text += &format!("{lead}{}", words.join(", "));
        }
    }
    text
}

/// A single run has a direction, and no difference can be ruled out by it.
fn of_one_run(known: &[(Column, &str, Share)]) -> String {
    let words: Vec<String> = known
        .iter()
        .filter(|(_, _, share)| share.value.abs() >= COST_SHARE)
        .map(|(column, name, share)| change_in_words(*column, name, share.value))
        .collect();
    match words.as_slice() {
        [] => "; cost unknown: one run".to_owned(),
        words => format!(", with {}", words.join(", ")),
    }
}

/// A difference as a share of what it is compared to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// The share.
    pub value: f64,
    /// Its interval.
    pub interval: Option<(f64, f64)>,
    /// How it is to be read.
    pub reading: Option<Reading>,
}

impl Share {
    /// Of a figure against the first variant's.
    pub fn of(column: Column, figure: &Figure) -> Option<Share> {
        let difference = figure.versus_first?;
        Share::from(column, &difference, figure.median - difference.value)
    }

    /// Of a difference to `before`; `None` where that is nothing.
    pub fn from(column: Column, difference: &Difference, before: f64) -> Option<Share> {
        let interval = difference.interval;
        (before > 0.0).then(|| Share {
            value: difference.value / before,
            interval: interval.map(|(low, high)| (low / before, high / before)),
            reading: difference.reading.or_else(|| interval.map(|interval| summary::reading(column, before, interval))),
        })
    }

    /// " (+15 … +25 %)"; nothing without an interval.
    pub fn interval_in_words(&self) -> String {
        self.interval.map_or(String::new(), |(low, high)| format!(" ({} … {} %)", signed(low), signed(high)))
    }
}

/// Whole percent with a sign and a true minus.
fn signed(share: f64) -> String {
    let percent = (share * 100.0).round();
    match percent {
        percent if percent < 0.0 => format!("\u{2212}{:.0}", -percent),
        percent => format!("+{:.0}", percent.abs()),
    }
}

/// "20 % more CPU time", "3.5 times the CPU time", "12 % higher p99".
fn change_in_words(column: Column, name: &str, share: f64) -> String {
    if share >= 1.0 {
        return format!("{:.1} times the {name}", share + 1.0);
    }
    let (up, down) = if column == Column::P99 { ("higher", "lower") } else { ("more", "less") };
    format!("{:.0} % {} {name}", share.abs() * 100.0, if share > 0.0 { up } else { down })
}

/// Whether every run of `other` took more CPU time than every run of `best`, of several runs each.
pub fn uses_more_cpu(other: &Summary, best: &Summary) -> bool {
    let cpu = |summary: &Summary| summary.figures.get(&Column::Cpu).copied();
    Option::zip(cpu(other), cpu(best)).is_some_and(|(other, best)| other.n.min(best.n) > 1 && other.min > best.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `runs` runs with these shares against a first of 10, as (column, low, middle, high); one run has no interval.
    fn summary(runs: u32, shares: &[(Column, f64, f64, f64)]) -> Summary {
        let figure = |&(column, low, middle, high): &(Column, f64, f64, f64)| {
            let interval = (runs > 1).then_some((10.0 * low, 10.0 * high));
            let figure = Figure {
                n: runs,
                median: 10.0 * (1.0 + middle),
                min: 10.0 * (1.0 + low),
                max: 10.0 * (1.0 + high),
                versus_first: Some(Difference { value: 10.0 * middle, interval, reading: None }),
            };
            (column, figure)
        };
        Summary { runs, errors: 0, figures: shares.iter().map(figure).collect() }
    }

    #[test]
    fn a_cost_is_claimed_as_far_as_its_interval_shows_it() {
        let cpu = |low, middle, high| (Column::Cpu, low, middle, high);
        let p99 = (Column::P99, -0.3, 0.0, 0.3);
        for (runs, shares, words) in [
            (
                3,
                &[cpu(-0.3, -0.25, -0.2), (Column::Throughput, 0.3, 0.35, 0.4), (Column::P99, -0.4, -0.35, -0.3)][..],
                ", with 25 % less CPU time (\u{2212}30 … \u{2212}20 %), 35 % more throughput (+30 … +40 %), \
                 35 % lower p99 (\u{2212}40 … \u{2212}30 %)",
            ),
            (3, &[cpu(-0.08, 0.01, 0.12), p99], "; unclear: CPU time (\u{2212}8 … +12 %), p99 (\u{2212}30 … +30 %)"),
            (
                3,
                &[cpu(-0.01, 0.0, 0.02), p99],
                "; no real difference: CPU time (\u{2212}1 … +2 %); unclear: p99 (\u{2212}30 … +30 %)",
            ),
            (
                3,
                &[cpu(-0.01, 0.0, 0.02), (Column::Throughput, -0.02, 0.0, 0.01)],
                ", at no measurable cost (CPU time \u{2212}1 … +2 %, throughput \u{2212}2 … +1 %)",
            ),
            (1, &[cpu(0.01, 0.01, 0.01)], "; cost unknown: one run"),
            (1, &[cpu(0.2, 0.2, 0.2)], ", with 20 % more CPU time"),
            (3, &[], ""),
        ] {
            let summary = summary(runs, shares);
            assert_eq!(in_words(&summary, false), words);
            let disturbed = if shares.is_empty() { "" } else { "; cost unknown: disturbed" };
            assert_eq!(in_words(&summary, true), disturbed, "{words}");
        }
        let once = |share| summary(1, &[cpu(share, share, share)]);
        assert!(!uses_more_cpu(&once(0.2), &once(0.0)));
    }
}
