//! ApacheBench. An answer whose length differs from the first one's is "failed" to it, and is none to us.

use super::words::word_after;
use crate::results::{LoadResult, Quantiles};

pub(super) fn read(text: &str) -> Option<LoadResult> {
    let seconds: f64 = word_after(text, "Time taken for tests:")?.parse().ok()?;
    let complete: u64 = word_after(text, "Complete requests:")?.parse().ok()?;
    let refused: u64 =
        word_after(text, "Non-2xx responses:").map_or(Some(0), |word| word.parse().ok())?;
    let percentile = |label: &str| {
        let (_, table) =
            text.split_once("Percentage of the requests served within a certain time (ms)")?;
        word_after(table, label)?.parse::<f64>().ok()
    };
    let unanswered = ["Connect:", "Receive:", "Exceptions:"].map(|kind| {
        let (_, failed) = text.split_once("Failed requests:")?;
        let (_, inside) = failed
            .split_once("(Connect:")
            .filter(|(before, _)| !before.contains("Total transferred"))?;
        let inside = format!("Connect:{}", inside.lines().next()?);
        word_after(&inside, kind)?.trim_end_matches([',', ')']).parse::<u64>().ok()
    });
    Some(LoadResult {
        requests: complete.saturating_sub(refused),
        errors: refused + unanswered.into_iter().flatten().sum::<u64>(),
        seconds,
        concurrency: word_after(text, "Concurrency Level:").and_then(|word| word.parse().ok()),
        latency_ms: percentile("50%").map(|p50| Quantiles { p50, p99: percentile("99%") }),
        histogram_ms: None,
        tool: None,
    })
}
