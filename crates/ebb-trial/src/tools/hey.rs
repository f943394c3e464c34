//! hey: no percentiles where nothing was answered.

use super::words::{bracketed_after, word_after};
use crate::results::{LoadResult, Quantiles};

pub(super) fn read(text: &str) -> Option<LoadResult> {
    // oha's summary begins alike, but says its rate of success first.
    let (_, summary) = text.split_once("\nSummary:\n  Total:")?;
    let seconds: f64 = summary.split_whitespace().next()?.parse().ok()?;
    let percentile = |label: &str| {
        let (_, rest) = summary.split_once(label)?;
        let secs: f64 = rest.split_whitespace().next()?.parse().ok()?;
        Some(secs * 1e3)
    };
    // `[200]	504 responses`
    let statuses: Vec<(&str, u64)> = bracketed_after(summary, "Status code distribution:")
        .into_iter()
        .filter_map(|(status, rest)| Some((status, rest.split_whitespace().next()?.parse().ok()?)))
        .collect();
    // `[8]	Get "http://...": connection refused`
    let unanswered: u64 = bracketed_after(summary, "Error distribution:")
        .iter()
        .filter_map(|(count, _)| count.parse::<u64>().ok())
        .sum();
    let (good, bad): (Vec<_>, Vec<_>) = statuses.iter().partition(|(status, _)| *status < "400");
    word_after(summary, "Requests/sec:")?;
    Some(LoadResult {
        requests: good.iter().map(|(_, count)| count).sum(),
        errors: bad.iter().map(|(_, count)| count).sum::<u64>() + unanswered,
        seconds,
        concurrency: None,
        latency_ms: percentile("50% in").map(|p50| Quantiles { p50, p99: percentile("99% in") }),
        histogram_ms: None,
        tool: None,
    })
}
