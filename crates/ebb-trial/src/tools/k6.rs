//! k6: its text at the end, of version 1 and before, and the JSON of `--summary-export /dev/stdout`.
//!
//! Its text has the median, but p(99) only where `--summary-trend-stats` asks for it.

use super::words::{millis, word_after};
use crate::results::{LoadResult, Quantiles};
use serde_json::Value;

pub(super) fn read(text: &str) -> Option<LoadResult> {
    from_text(text).or_else(|| from_json(text))
}

fn from_text(text: &str) -> Option<LoadResult> {
    let line = |metric: &str| -> Option<&str> {
        let mut lines = text.lines().map(str::trim_start);
        let line = lines
            .rfind(|line| line.strip_prefix(metric).is_some_and(|rest| rest.starts_with("..")))?;
        line.split_once(": ").map(|(_, values)| values)
    };
    let mut totals = line("http_reqs")?.split_whitespace();
    let all: u64 = totals.next()?.parse().ok()?;
    let rate: f64 = totals.next()?.strip_suffix("/s")?.parse().ok()?;
    // `2.59%  12 out of 462`, before version 1 `2.59%  ✓ 12  ✗ 450`.
    let failed: u64 =
        line("http_req_failed")?.split_whitespace().find_map(|word| word.parse().ok())?;
    let durations = line("http_req_duration")?;
    let quantile = |label: &str| millis(word_after(durations, label)?);
    Some(result(all, failed, rate, quantile("med="), quantile("p(99)=")))
}

fn from_json(text: &str) -> Option<LoadResult> {
    let export = text.get(text.find('{')?..=text.rfind('}')?)?;
    let export: Value = serde_json::from_str(export).ok()?;
    let metrics = export.get("metrics")?;
    let number = |metric: &str, name: &str| metrics.get(metric)?.get(name)?.as_f64();
    Some(result(
        number("http_reqs", "count")? as u64,
        // To k6 this metric passes when the request failed.
        number("http_req_failed", "passes")? as u64,
        number("http_reqs", "rate")?,
        number("http_req_duration", "med"),
        number("http_req_duration", "p(99)"),
    ))
}

fn result(all: u64, failed: u64, rate: f64, p50: Option<f64>, p99: Option<f64>) -> LoadResult {
    LoadResult {
        requests: all.saturating_sub(failed),
        errors: failed,
        seconds: all as f64 / rate,
        concurrency: None,
        latency_ms: p50.map(|p50| Quantiles { p50, p99 }),
        histogram_ms: None,
        tool: None,
    }
}
