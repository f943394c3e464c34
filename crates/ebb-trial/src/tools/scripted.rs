//! k6 and locust, whose loads are scripts: text or JSON.

use super::words::{millis, word_after};
use crate::results::{LoadResult, Quantiles};
use serde_json::Value;
use std::collections::BTreeMap;

/// k6: its text at the end, of version 1 and before, and the JSON of `--summary-export /dev/stdout`. Its text has the
/// median, but p(99) only where `--summary-trend-stats` asks for it.
pub(super) fn k6(text: &str) -> Option<LoadResult> {
    k6_text(text).or_else(|| k6_json(text))
}

fn k6_text(text: &str) -> Option<LoadResult> {
    let line = |metric: &str| -> Option<&str> {
        let mut lines = text.lines().map(str::trim_start);
        let line = lines.rfind(|line| line.strip_prefix(metric).is_some_and(|rest| rest.starts_with("..")))?;
        line.split_once(": ").map(|(_, values)| values)
    };
    let mut totals = line("http_reqs")?.split_whitespace();
    let all: u64 = totals.next()?.parse().ok()?;
    let rate: f64 = totals.next()?.strip_suffix("/s")?.parse().ok()?;
    // `2.59%  12 out of 462`, before version 1 `2.59%  ✓ 12  ✗ 450`.
    let failed: u64 = line("http_req_failed")?.split_whitespace().find_map(|word| word.parse().ok())?;
    let durations = line("http_req_duration")?;
    let quantile = |label: &str| millis(word_after(durations, label)?);
    Some(k6_result(all, failed, rate, quantile("med="), quantile("p(99)=")))
}

fn k6_json(text: &str) -> Option<LoadResult> {
    let export = text.get(text.find('{')?..=text.rfind('}')?)?;
    let export: Value = serde_json::from_str(export).ok()?;
    let metrics = export.get("metrics")?;
    let number = |metric: &str, name: &str| metrics.get(metric)?.get(name)?.as_f64();
    Some(k6_result(
        number("http_reqs", "count")? as u64,
        // To k6 this metric passes when the request failed.
        number("http_req_failed", "passes")? as u64,
        number("http_reqs", "rate")?,
        number("http_req_duration", "med"),
        number("http_req_duration", "p(99)"),
    ))
}

fn k6_result(all: u64, failed: u64, rate: f64, p50: Option<f64>, p99: Option<f64>) -> LoadResult {
    LoadResult {
        requests: all.saturating_sub(failed),
        errors: failed,
        seconds: all as f64 / rate,
        latency_ms: p50.map(|p50| Quantiles { p50, p99 }),
        ..LoadResult::default()
    }
}

/// locust without its web page: the tables of `--headless`, or what `--json` prints. It tells the rate and not the time,
/// so the time is requests by rate. Its latencies are rounded to two digits.
pub(super) fn locust(text: &str) -> Option<LoadResult> {
    locust_json(text).or_else(|| locust_tables(text))
}

/// The last two lines "Aggregated": one of the table of counts, one of that of percentiles.
fn locust_tables(text: &str) -> Option<LoadResult> {
    let (before, percentiles) = text.rsplit_once("Response time percentiles (approximated)")?;
    let totals = |part: &str| -> Option<Vec<String>> {
        let line = part.lines().rfind(|line| line.trim_start().starts_with("Aggregated"))?;
        // `461     5(1.08%) |     55 ...`
        let words = line.split(|letter: char| letter.is_whitespace() || "|()".contains(letter));
        Some(words.filter(|word| !word.is_empty()).skip(1).map(str::to_owned).collect())
    };
    let counts = totals(before)?;
    let number = |at: usize| counts.get(at)?.parse::<f64>().ok();
    // requests, failures, their share, then average, lowest, highest, median, and the rates.
    let (requests, failures, rate) = (number(0)?, number(1)?, number(7)?);
    // 50 66 75 80 90 95 98 99 ...
    let quantiles = totals(percentiles)?;
    let percentile = |at: usize| quantiles.get(at)?.parse::<f64>().ok();
    Some(LoadResult {
        requests: (requests - failures) as u64,
        errors: failures as u64,
        seconds: requests / rate,
        latency_ms: percentile(0).map(|p50| Quantiles { p50, p99: percentile(7) }),
        ..LoadResult::default()
    })
}

/// What `--json` writes of one address.
#[derive(serde::Deserialize)]
struct Address {
    num_requests: u64,
    num_failures: u64,
    start_time: f64,
    last_request_timestamp: Option<f64>,
    response_times: BTreeMap<String, u64>,
}

fn locust_json(text: &str) -> Option<LoadResult> {
    // With the errors' lines around it.
    let (from, to) = (text.find("[\n    {")?, text.rfind("\n]")?);
    let addresses: Vec<Address> = serde_json::from_str(text.get(from..to + 2)?).ok()?;
    let first = addresses.iter().map(|address| address.start_time).fold(f64::INFINITY, f64::min);
    let last = addresses.iter().filter_map(|address| address.last_request_timestamp).fold(f64::NEG_INFINITY, f64::max);
    let mut cells: Vec<(f64, u64)> = Vec::new();
    for (ms, count) in addresses.iter().flat_map(|address| &address.response_times) {
        cells.push((ms.parse().ok()?, *count));
    }
    let requests: u64 = addresses.iter().map(|address| address.num_requests).sum();
    let failures: u64 = addresses.iter().map(|address| address.num_failures).sum();
    Some(LoadResult {
        requests: requests.saturating_sub(failures),
        errors: failures,
        seconds: last - first,
        latency_ms: ebb_statistics::histogram_quantile(&cells, 0.5)
            .map(|p50| Quantiles { p50, p99: ebb_statistics::histogram_quantile(&cells, 0.99) }),
        histogram_ms: Some(cells),
        ..LoadResult::default()
    })
}
