//! Load tools that people have: what each prints at its end, read for throughput and latency.
//!
//! Used by `load` where the last line is no summary of ours. A summary is recognised by its text and not by
//! the program's name, since tools run in shells and containers. One file a tool, each tried on what real runs
//! of it printed (`tests/fixtures/tools`, the name has the version). Pure; what is not there is `None`.

mod ab;
mod hey;
mod k6;
mod locust;
mod oha;
mod wrk;

use crate::results::LoadResult;

/// Reads what a tool wrote; `None` where it is not that tool's.
type Reader = fn(&str) -> Option<LoadResult>;

/// All of them, in the order in which they are tried.
const READERS: [(&str, Reader); 6] = [
    ("oha", oha::read),
    ("wrk", wrk::read),
    ("k6", k6::read),
    ("locust", locust::read),
    ("hey", hey::read),
    ("ab", ab::read),
];

/// The names, for messages.
pub fn names() -> String {
    READERS.map(|(name, _)| name).join(", ")
}

/// Reads the summary of any known tool in what a load wrote, errors included.
pub fn read(output: &str) -> Option<LoadResult> {
    READERS.iter().find_map(|(name, reader)| {
        let load = reader(output).filter(|load| load.seconds.is_finite() && load.seconds > 0.0)?;
        Some(LoadResult {
            tool: Some((*name).to_owned()),
            ..load
        })
    })
}

/// What follows a label on its line: the first word after it.
fn word_after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(label)?;
    rest.lines().next()?.split_whitespace().next()
}

/// The lines `  [X] rest` below a heading: what stands in the brackets, and after them.
fn bracketed_after<'a>(text: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let Some((_, below)) = text.split_once(heading) else {
        return Vec::new();
    };
    let lines = below
        .lines()
        .skip(1)
        .map_while(|line| line.strip_prefix("  ["));
    lines
        .filter_map(|line| line.split_once(']'))
        .map(|(inside, rest)| (inside, rest.trim()))
        .collect()
}

/// A length of time as tools in Go and C write it, in milliseconds: `612.34µs`, `47.18ms`, `1m3.2s`.
fn millis(text: &str) -> Option<f64> {
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'))?;
        let value: f64 = rest[..digits].parse().ok()?;
        let unit_end = rest[digits..]
            .find(|letter: char| letter.is_ascii_digit())
            .map_or(rest.len(), |at| digits + at);
        total += value
            * match &rest[digits..unit_end] {
                "ns" => 1e-6,
                "us" | "µs" => 1e-3,
                "ms" => 1.0,
                "s" => 1e3,
                "m" => 60e3,
                "h" => 3600e3,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests;
