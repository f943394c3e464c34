//! wrk: latency percentiles only with `--latency`.

use super::words::{millis, word_after};
use crate::results::{LoadResult, Quantiles};

pub(super) fn read(text: &str) -> Option<LoadResult> {
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    word_after(text, "Requests/sec:")?;
    let (requests, rest) = line.trim().split_once(" requests in ")?;
    let (length, _) = rest.split_once(',')?;
    let requests: u64 = requests.parse().ok()?;
    let refused: u64 =
        word_after(text, "Non-2xx or 3xx responses:").map_or(Some(0), |word| word.parse().ok())?;
    let percentile = |label: &str| {
        let (_, distribution) = text.split_once("Latency Distribution")?;
        millis(word_after(distribution, label)?)
    };
    Some(LoadResult {
        requests: requests.saturating_sub(refused),
        errors: refused + socket_errors(text)?,
        seconds: millis(length)? / 1e3,
        concurrency: connections(text),
        latency_ms: percentile("50%").map(|p50| Quantiles { p50, p99: percentile("99%") }),
        histogram_ms: None,
        tool: None,
    })
}

/// `2 threads and 8 connections`
fn connections(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains(" threads and "))?;
    word_after(line, " threads and ")?.parse().ok()
}

/// `Socket errors: connect 0, read 5, write 0, timeout 2`; the line is there only if one is not 0.
fn socket_errors(text: &str) -> Option<u64> {
    let Some((_, rest)) = text.split_once("Socket errors:") else {
        return Some(0);
    };
    let counts = rest.lines().next()?.split(',');
    counts.map(|count| count.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}
