//! oha: its text, and the JSON of `--output-format json`.
//!
//! Requests that it broke off itself at the end of its time are no errors of the service.

use super::words::{bracketed_after, word_after};
use crate::results::{LoadResult, Quantiles};
use std::collections::BTreeMap;

/// What it calls the requests that it broke off.
const BROKEN_OFF: &str = "aborted due to deadline";

pub(super) fn read(text: &str) -> Option<LoadResult> {
    from_text(text).or_else(|| from_json(text))
}

fn from_text(text: &str) -> Option<LoadResult> {
    word_after(text, "  Success rate:")?;
    word_after(text, "  Requests/sec:")?;
    let length = |label: &str| {
        let (_, rest) = text.split_once(label)?;
        let mut words = rest.lines().next()?.split_whitespace();
        let value: f64 = words.next()?.parse().ok()?;
        // `NaN ns` where nothing was answered.
        if !value.is_finite() {
            return None;
        }
        let unit: Vec<&str> = words.take(2).collect();
        // With a long run it counts in tens: `1.2000 10 sec`.
        let (tens, unit) = match unit[..] {
            ["10", unit] => (10.0, unit),
            [unit, ..] => (1.0, unit),
            [] => return None,
        };
        let in_ms = match unit {
            "ns" => 1e-6,
            "us" => 1e-3,
            "ms" => 1.0,
            "sec" => 1e3,
            "min" => 60e3,
            "hr" => 3600e3,
            _ => return None,
        };
        Some(value * tens * in_ms)
    };
    let statuses = bracketed_after(text, "Status code distribution:");
    let statuses =
        statuses.into_iter().filter_map(|(status, rest)| Some((status, rest.split_whitespace().next()?.parse().ok()?)));
    let errors = bracketed_after(text, "Error distribution:");
    let errors = errors.into_iter().filter_map(|(count, reason)| Some((reason, count.parse().ok()?)));
    Some(result(
        statuses,
        errors,
        length("  Total:")? / 1e3,
        length("  50.00% in ").map(|p50| Quantiles { p50, p99: length("  99.00% in ") }),
    ))
}

fn from_json(text: &str) -> Option<LoadResult> {
    #[derive(serde::Deserialize)]
    struct Summary {
        total: f64,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Whole {
        summary: Summary,
        /// Seconds; `null` where nothing was answered.
        latency_percentiles: BTreeMap<String, Option<f64>>,
        status_code_distribution: BTreeMap<String, u64>,
        error_distribution: BTreeMap<String, u64>,
    }
    let json = text.get(text.find('{')?..=text.rfind('}')?)?;
    let whole: Whole = serde_json::from_str(json).ok()?;
    let percentile = |name: &str| Some(whole.latency_percentiles.get(name).copied()?? * 1e3);
    let latency_ms = percentile("p50").map(|p50| Quantiles { p50, p99: percentile("p99") });
    let pairs = |map: &'_ BTreeMap<String, u64>| -> Vec<(String, u64)> {
        map.iter().map(|(name, count)| (name.clone(), *count)).collect()
    };
    let (statuses, errors) = (pairs(&whole.status_code_distribution), pairs(&whole.error_distribution));
    Some(result(
        statuses.iter().map(|(status, count)| (status.as_str(), *count)),
        errors.iter().map(|(reason, count)| (reason.as_str(), *count)),
        whole.summary.total,
        latency_ms,
    ))
}

fn result<'a>(
    statuses: impl Iterator<Item = (&'a str, u64)>,
    errors: impl Iterator<Item = (&'a str, u64)>,
    seconds: f64,
    latency_ms: Option<Quantiles>,
) -> LoadResult {
    let (good, bad): (Vec<_>, Vec<_>) = statuses.partition(|(status, _)| *status < "400");
    let sum = |counts: &[(&str, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();
    // Of an output that was cut off there may be the beginning alone.
    let unanswered = errors.filter(|(reason, _)| !BROKEN_OFF.starts_with(reason));
    LoadResult {
        requests: sum(&good),
        errors: sum(&bad) + unanswered.map(|(_, count)| count).sum::<u64>(),
        seconds,
        latency_ms,
        ..LoadResult::default()
    }
}
