//! The outcome of the requests: answered, failed and why, latencies. One for each connection, added up.

use ebb_trial::results::{LoadResult, Quantiles};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// Two digits: a latency is known to one percent.
const DIGITS: u8 = 2;
/// Latencies are counted in microseconds.
const MICROS_IN_MS: f64 = 1000.0;

/// The count.
#[derive(Debug)]
pub struct Tally {
    /// Latencies of what was answered, in microseconds.
    latencies: Histogram<u64>,
    /// What failed, by reason.
    errors: BTreeMap<String, u64>,
}

impl Default for Tally {
    fn default() -> Tally {
        let latencies = Histogram::new(DIGITS).expect("two digits are a precision of the library");
        Tally { latencies, errors: BTreeMap::new() }
    }
}

impl Tally {
    pub fn answered(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies.record(micros).expect("this histogram grows as needed");
    }

    pub fn failed(&mut self, reason: String) {
        *self.errors.entry(reason).or_default() += 1;
    }

    pub fn add(&mut self, other: &Tally) {
        self.latencies.add(&other.latencies).expect("this histogram grows as needed");
        for (reason, count) in &other.errors {
            *self.errors.entry(reason.clone()).or_default() += count;
        }
    }

    /// Reasons of failures, the most frequent first.
    pub fn reasons(&self) -> Vec<(&str, u64)> {
        let mut reasons: Vec<_> = self.errors.iter().map(|(text, count)| (text.as_str(), *count)).collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        reasons
    }

    /// A quantile of the latency in milliseconds; `None` where nothing was answered.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        (!self.latencies.is_empty()).then(|| self.latencies.value_at_quantile(quantile) as f64 / MICROS_IN_MS)
    }

    /// The summary, as `ebb compare` reads it.
    pub fn summary(&self, seconds: f64, tool: String) -> LoadResult {
        let cells = self
            .latencies
            .iter_recorded()
            .map(|cell| (cell.value_iterated_to() as f64 / MICROS_IN_MS, cell.count_at_value()));
        LoadResult {
            requests: self.latencies.len(),
            errors: self.errors.values().sum(),
            seconds,
            concurrency: None,
            latency_ms: self.quantile_ms(0.5).map(|p50| Quantiles { p50, p99: self.quantile_ms(0.99) }),
            histogram_ms: (!self.latencies.is_empty()).then(|| cells.collect()),
            tool: Some(tool),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_connections_add_up() {
        let (mut one, mut other) = (Tally::default(), Tally::default());
        for ms in 1..=99 {
            one.answered(Duration::from_millis(ms));
        }
        other.answered(Duration::from_secs(5));
        other.failed("status 503".into());
        other.failed("refused".into());
        other.failed("status 503".into());
        one.add(&other);
        assert_eq!(one.reasons(), [("status 503", 2), ("refused", 1)]);
        let summary = one.summary(2.0, "x".into());
        assert_eq!((summary.requests, summary.errors), (100, 3));
        let quantiles = summary.latency_ms.unwrap();
        assert!((49.0..=51.0).contains(&quantiles.p50), "{quantiles:?}");
        let cells = summary.histogram_ms.unwrap();
        assert_eq!(cells.iter().map(|(_, count)| count).sum::<u64>(), 100);
        assert!((4950.0..5100.0).contains(&cells.last().unwrap().0), "{cells:?}");
    }

    #[test]
    fn nothing_answered_has_no_latency() {
        let summary = Tally::default().summary(1.0, "x".into());
        assert_eq!((summary.requests, summary.latency_ms, summary.histogram_ms), (0, None, None));
    }
}
