//! wrk, hey and ApacheBench, which print text only.

use super::words::{bracketed_after, millis, word_after};
use crate::results::{LoadResult, Quantiles};

/// wrk: latency percentiles only with `--latency`.
pub(super) fn wrk(text: &str) -> Option<LoadResult> {
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    word_after(text, "Requests/sec:")?;
    let (requests, rest) = line.trim().split_once(" requests in ")?;
    let (length, _) = rest.split_once(',')?;
    let requests: u64 = requests.parse().ok()?;
    let refused: u64 = word_after(text, "Non-2xx or 3xx responses:").map_or(Some(0), |word| word.parse().ok())?;
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
        ..LoadResult::default()
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

/// hey: no percentiles where nothing was answered.
pub(super) fn hey(text: &str) -> Option<LoadResult> {
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
    let unanswered: u64 =
        bracketed_after(summary, "Error distribution:").iter().filter_map(|(count, _)| count.parse::<u64>().ok()).sum();
    let (good, bad): (Vec<_>, Vec<_>) = statuses.iter().partition(|(status, _)| *status < "400");
    word_after(summary, "Requests/sec:")?;
    Some(LoadResult {
        requests: good.iter().map(|(_, count)| count).sum(),
        errors: bad.iter().map(|(_, count)| count).sum::<u64>() + unanswered,
        seconds,
        latency_ms: percentile("50% in").map(|p50| Quantiles { p50, p99: percentile("99% in") }),
        ..LoadResult::default()
    })
}

/// ApacheBench. An answer whose length differs from the first one's is "failed" to it, and is none to us.
pub(super) fn ab(text: &str) -> Option<LoadResult> {
    let seconds: f64 = word_after(text, "Time taken for tests:")?.parse().ok()?;
    let complete: u64 = word_after(text, "Complete requests:")?.parse().ok()?;
    let refused: u64 = word_after(text, "Non-2xx responses:").map_or(Some(0), |word| word.parse().ok())?;
    let percentile = |label: &str| {
        let (_, table) = text.split_once("Percentage of the requests served within a certain time (ms)")?;
        word_after(table, label)?.parse::<f64>().ok()
    };
    let unanswered = ["Connect:", "Receive:", "Exceptions:"].map(|kind| {
        let (_, failed) = text.split_once("Failed requests:")?;
        let (_, inside) = failed.split_once("(Connect:").filter(|(before, _)| !before.contains("Total transferred"))?;
        let inside = format!("Connect:{}", inside.lines().next()?);
        word_after(&inside, kind)?.trim_end_matches([',', ')']).parse::<u64>().ok()
    });
    Some(LoadResult {
        requests: complete.saturating_sub(refused),
        errors: refused + unanswered.into_iter().flatten().sum::<u64>(),
        seconds,
        concurrency: word_after(text, "Concurrency Level:").and_then(|word| word.parse().ok()),
        latency_ms: percentile("50%").map(|p50| Quantiles { p50, p99: percentile("99%") }),
        ..LoadResult::default()
    })
}
