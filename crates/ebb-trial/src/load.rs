//! What a load command told: the last line of its output or a tool's summary, and what several of them
//! come to.
//!
//! Used by `run` (one phase) and `summary` (all phases of a run). Pure.

use super::tools;
use crate::results::{LoadResult, Quantiles};

/// Reads what a load wrote: its last line where that is a summary, else what a known tool printed, on
/// stdout or stderr. The message says what was expected.
pub fn read(output: &str, errors: &str) -> Result<LoadResult, String> {
    last_line(output).or_else(|reason| {
        tools::read(&format!("{output}\n{errors}"))
            .ok_or_else(|| format!("{reason}; it is not a summary of {} either", tools::names()))
    })
}

/// Reads the last line that is not empty.
fn last_line(output: &str) -> Result<LoadResult, String> {
    let line = output
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .ok_or("it printed nothing; its last line must be one JSON object with requests, errors and seconds")?;
    let load: LoadResult = serde_json::from_str(line.trim())
        .map_err(|error| format!("its last line is not the JSON object that was expected ({error}): {line}"))?;
    if !(load.seconds.is_finite() && load.seconds > 0.0) {
        return Err(format!("its last line says seconds = {}", load.seconds));
    }
    Ok(load)
}

/// Requests a second over all of them together.
pub fn throughput(loads: &[&LoadResult]) -> Option<f64> {
    let seconds: f64 = loads.iter().map(|load| load.seconds).sum();
    let requests: u64 = loads.iter().map(|load| load.requests).sum();
    (seconds > 0.0).then(|| requests as f64 / seconds)
}

/// Median and 99th percentile over all of them: from the sum of the histograms where every one has
/// one, else the medians of their quantiles, weighted by requests.
pub fn latency(loads: &[&LoadResult]) -> Option<Quantiles> {
    if loads.is_empty() {
        return None;
    }
    let histograms: Option<Vec<_>> = loads.iter().map(|load| load.histogram_ms.as_ref()).collect();
    if let Some(histograms) = histograms {
        let cells = ebb_statistics::merge_cells(histograms.into_iter().flatten());
        return Some(Quantiles {
            p50: ebb_statistics::histogram_quantile(&cells, 0.50)?,
            p99: ebb_statistics::histogram_quantile(&cells, 0.99),
        });
    }
    let quantiles: Vec<(Quantiles, u64)> =
        loads.iter().filter_map(|load| Some((load.latency_ms?, load.requests))).collect();
    let weighted = |pick: fn(&Quantiles) -> Option<f64>| {
        let pairs: Option<Vec<_>> =
            quantiles.iter().map(|(quantiles, weight)| Some((pick(quantiles)?, *weight))).collect();
        ebb_statistics::weighted_median(&pairs?)
    };
    Some(Quantiles { p50: weighted(|q| Some(q.p50))?, p99: weighted(|q| q.p99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_and_what_is_no_summary_is_told() {
        let output = "warming\n{\"requests\": 9, \"seconds\": 2.5, \"latency_ms\": {\"p50\": 3, \"p99\": 8}}\n\n";
        let load = last_line(output).unwrap();
        assert_eq!((load.requests, load.errors, load.seconds), (9, 0, 2.5));
        assert_eq!(load.latency_ms.unwrap().p99, Some(8.0));
        for (output, parts) in [
            ("", &["printed nothing"][..]),
            ("done\n", &["done", "wrk"]),
            (r#"{"requests": 1, "seconds": 0}"#, &["seconds = 0"]),
        ] {
            let message = read(output, "").unwrap_err();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }

    fn load(requests: u64, seconds: f64, p50: f64) -> LoadResult {
        let latency_ms = Some(Quantiles { p50, p99: Some(p50 * 2.0) });
        LoadResult { requests, seconds, latency_ms, ..LoadResult::default() }
    }

    #[test]
    fn histograms_are_summed_where_all_have_one_else_quantiles_are_weighted_by_requests() {
        let with = |histogram, load| LoadResult { histogram_ms: Some(histogram), ..load };
        let left = with(vec![(10.0, 2)], load(2, 1.0, 0.0));
        let right = with(vec![(10.0, 1), (20.0, 1)], load(2, 3.0, 0.0));
        assert_eq!(throughput(&[&left, &right]), Some(1.0));
        let quantiles = latency(&[&left, &right]).unwrap();
        assert!(quantiles.p50 < 10.0 && quantiles.p99.unwrap() > 19.0, "{quantiles:?}");
        let (few, many) = (load(1, 1.0, 500.0), load(99, 1.0, 5.0));
        assert_eq!(latency(&[&few, &many]).unwrap().p50, 5.0);
        assert_eq!(latency(&[]), None);
        let latency_ms = Some(Quantiles { p50: 5.0, p99: None });
        let without = LoadResult { latency_ms, ..many };
        let quantiles = latency(&[&few, &without]).unwrap();
        assert_eq!((quantiles.p50, quantiles.p99), (5.0, None), "of a part is no p99 of the whole");
    }
}
