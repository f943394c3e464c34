//! The answer over several looks in a terminal, and what changed between two.

use std::fmt::Write;

use super::diagnosis::words::wrap;
use super::diagnosis::{self, Form};
use super::figures::{cause_lines, duration, step_line};
use ebb_diagnosis::facts::growth::{Change, Difference, FloorStep, Growth, Series, Trend, Unit};

/// A series that moved by less has no line in the short form.
const LEAST_MOVE: u64 = 100_000;

/// The verdict, what grows and what does not, the next step; in full the last look as well.
pub fn render(growth: &Growth, form: Form) -> String {
    let mut out = String::new();
    match form {
        Form::Short(columns) => {
            for line in wrap(&growth.verdict.sentence, columns, 2) {
                let _ = writeln!(out, "{line}");
            }
            let moves = |trend: &&Trend| trend.series == Series::Total || trend.from.abs_diff(trend.to) >= LEAST_MOVE;
            for trend in growth.trends.iter().filter(moves) {
                let _ = writeln!(out, "{}", line(trend));
            }
            for line in step_lines(growth, form) {
                let _ = writeln!(out, "{line}");
            }
            for line in rests(growth).iter().flat_map(|line| wrap(line, columns, 2)) {
                let _ = writeln!(out, "{line}");
            }
            for line in diagnosis::short::next(&growth.verdict, &growth.last.findings, columns) {
                let _ = writeln!(out, "{line}");
            }
        }
        Form::Full => {
            let _ = writeln!(out, "{}\n", growth.verdict.sentence);
            for trend in &growth.trends {
                let _ = writeln!(out, "{}", line(trend));
            }
            for line in step_lines(growth, form) {
                let _ = writeln!(out, "{line}");
            }
            if let Some(line) = rests(growth) {
                let _ = writeln!(out, "{line}");
            }
            if let Some(next) = &growth.verdict.next {
                let _ = writeln!(out, "\nNext: {next}");
            }
            let _ = write!(
                out,
                "\nThe last of {} looks:\n\n{}",
                growth.points.len(),
                diagnosis::render(std::slice::from_ref(&growth.last), form)
            );
        }
    }
    out
}

fn line(trend: &Trend) -> String {
    let mark = if trend.grows { "* " } else { "- " };
    let name = match trend.series {
        Series::Live => "live",
        Series::Held => "freed and held",
        Series::Other => "other anonymous",
        Series::Shared => "shared memory",
        Series::Total => "all",
    };
    let hourly = |bytes_per_s: f64| format!("{:+.1}", bytes_per_s * 3600.0 / 1e6);
    let slope = trend.slope.map_or("no slope".to_owned(), |slope| {
        format!("{} MB per hour ({} to {})", hourly(slope.bytes_per_s), hourly(slope.low), hourly(slope.high))
    });
    format!("{mark}{name}: floors from {:.1} to {:.1} MB, {slope}", trend.from as f64 / 1e6, trend.to as f64 / 1e6)
}

/// The steps of the floor, and the events that they follow. The short form has the largest step only.
fn step_lines(growth: &Growth, form: Form) -> Vec<String> {
    let causes = cause_lines(&growth.events).map(|line| format!("* {line}"));
    let shown = |step: &FloorStep| format!("- {}", step_line(step));
    let count = growth.steps.len();
    let largest = growth.steps.iter().max_by_key(|step| step.bytes.abs());
    let Some(largest) = largest.filter(|_| matches!(form, Form::Short(_)) && count > 1) else {
        return growth.steps.iter().map(shown).chain(causes).collect();
    };
    let line = format!("{}; {} more: -v", shown(largest), count - 1);
    std::iter::once(line).chain(causes.take(1)).collect()
}

/// After which bursts a trim would have helped.
fn rests(growth: &Growth) -> Option<String> {
    /// Times of more are not listed.
    const MOST_TIMES: usize = 4;
    let found = growth.rests.as_ref()?;
    let count = found.rests.len();
    let mut times: Vec<String> = found.rests.iter().take(MOST_TIMES).map(|rest| duration(rest.at_s)).collect();
    if count > MOST_TIMES {
        times.push(format!("{} more", count - MOST_TIMES));
    }
    let median = if count > 1 { " (median)" } else { "" };
    let next = found.next.as_ref().map_or_else(String::new, |next| format!(": {next}"));
    Some(format!(
        "- idle after a burst at {}: malloc_trim would have returned {:.1} MB{median}{next}",
        times.join(", "),
        found.median_bytes as f64 / 1e6
    ))
}

/// What changed between two snapshots.
pub fn render_difference(difference: &Difference) -> String {
    let mut out = format!("{}\n\n", difference.sentence);
    for caution in &difference.cautions {
        let _ = writeln!(out, "! {caution}");
    }
    for change in &difference.changes {
        let _ = writeln!(out, "{}", change_line(change));
    }
    if difference.changes.is_empty() {
        let _ = writeln!(out, "Nothing changed by more than 1 MiB.");
    }
    if let Some(next) = &difference.next {
        let _ = writeln!(out, "\nNext: {next}");
    }
    out
}

fn change_line(change: &Change) -> String {
    let mark = if change.growth() > 0 { "+" } else { "-" };
    match change.unit {
        Unit::Bytes => {
            let mb = |bytes: u64| bytes as f64 / 1e6;
            format!(
                "{mark} {}: {:.1} to {:.1} MB ({:+.1})",
                change.what,
                mb(change.before),
                mb(change.after),
                change.growth() as f64 / 1e6
            )
        }
        Unit::Count => format!("{mark} {}: {} to {} ({:+})", change.what, change.before, change.after, change.growth()),
    }
}
