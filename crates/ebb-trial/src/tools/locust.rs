//! locust without its web page: the tables of `--headless`, or what `--json` prints.
//!
//! It tells the rate and not the time, so the time is requests by rate. Its latencies are rounded to two
//! digits.

use crate::results::{LoadResult, Quantiles};
use std::collections::BTreeMap;

pub(super) fn read(text: &str) -> Option<LoadResult> {
    from_json(text).or_else(|| from_tables(text))
}

/// The last two lines "Aggregated": one of the table of counts, one of that of percentiles.
fn from_tables(text: &str) -> Option<LoadResult> {
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
        concurrency: None,
        latency_ms: percentile(0).map(|p50| Quantiles { p50, p99: percentile(7) }),
        histogram_ms: None,
        tool: None,
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

fn from_json(text: &str) -> Option<LoadResult> {
    // With the errors' lines around it.
    let (from, to) = (text.find("[\n    {")?, text.rfind("\n]")?);
    let addresses: Vec<Address> = serde_json::from_str(text.get(from..to + 2)?).ok()?;
    let first = addresses.iter().map(|address| address.start_time).fold(f64::INFINITY, f64::min);
    let last = addresses
        .iter()
        .filter_map(|address| address.last_request_timestamp)
        .fold(f64::NEG_INFINITY, f64::max);
    let mut cells: Vec<(f64, u64)> = Vec::new();
    for (ms, count) in addresses.iter().flat_map(|address| &address.response_times) {
        cells.push((ms.parse().ok()?, *count));
    }
    let failures: u64 = addresses.iter().map(|address| address.num_failures).sum();
    Some(LoadResult {
        requests: addresses
            .iter()
            .map(|address| address.num_requests)
            .sum::<u64>()
            .saturating_sub(failures),
        errors: failures,
        seconds: last - first,
        concurrency: None,
        latency_ms: ebb_statistics::histogram_quantile(&cells, 0.5)
            .map(|p50| Quantiles { p50, p99: ebb_statistics::histogram_quantile(&cells, 0.99) }),
        histogram_ms: Some(cells),
        tool: None,
    })
}
