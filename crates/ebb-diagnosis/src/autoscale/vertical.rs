//! The VerticalPodAutoscaler's recommender and updater for memory, with their defaults.
//!
//! Source: kubernetes/autoscaler, vertical-pod-autoscaler: `pkg/recommender/model/aggregations_config.go` (peaks, half-life, buckets),
//! `pkg/recommender/logic/recommender.go` and `estimator.go` (percentiles, margin, confidence), `pkg/updater/priority` (when a pod is
//! restarted), docs/flags.md.

use std::collections::BTreeMap;

use crate::facts::autoscale::{Look, Vertical};

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;
/// One peak of each container in so long a time is a sample (`memory-aggregation-interval`).
const INTERVAL_S: f64 = DAY;
/// A sample of that age counts half (`memory-histogram-decay-half-life`).
const HALF_LIFE_S: f64 = DAY;
/// The first bucket of the histogram, and how each grows over the one before.
const FIRST_BUCKET: f64 = 1e7;
const GROWTH: f64 = 1.05;
/// Percentiles of the request and of its bounds. A pod with a request outside the bounds is restarted.
const TARGET: f64 = 0.9;
const LOWER: f64 = 0.5;
const UPPER: f64 = 0.95;
/// `recommendation-margin-fraction`.
const MARGIN: f64 = 1.15;
/// `pod-recommendation-min-memory-mb`.
const LEAST: f64 = 250.0 * 1024.0 * 1024.0;
/// After an OOM kill the sample is the larger of both (`oom-bump-up-ratio`, `oom-min-bump-up-bytes`).
const BUMP_RATIO: f64 = 1.2;
const BUMP_BYTES: f64 = 100.0 * 1024.0 * 1024.0;
/// A pod that has run so long is restarted for a smaller change, too: `pod-update-threshold`.
const LONG_LIVED_S: f64 = 12.0 * HOUR;
const LEAST_CHANGE: f64 = 0.1;

/// Peaks by replica and interval.
type Peaks = BTreeMap<((i32, u64), u64), (f64, f64)>;

/// The recommendation after all looks; the first request is the first day's. Decisions are made once an hour.
pub fn recommend(looks: &[Look]) -> Vertical {
    let mut peaks = Peaks::new();
    let mut kills: BTreeMap<(i32, u64), u64> = BTreeMap::new();
    let (mut request, mut set_at, mut restarts, mut decided) = (None::<f64>, 0.0, 0, 0.0);
    for look in looks {
        for seen in &look.replicas {
            let known = kills.insert(seen.life, seen.oom_kills);
            let killed = known.is_some_and(|known| seen.oom_kills > known);
            let bytes = seen.bytes as f64;
            let bytes = if killed { (bytes * BUMP_RATIO).max(bytes + BUMP_BYTES) } else { bytes };
            let interval = (look.at_s / INTERVAL_S) as u64;
            let peak = peaks.entry((seen.life, interval)).or_insert((look.at_s, bytes));
            if bytes > peak.1 {
                *peak = (look.at_s, bytes);
            }
        }
        if look.at_s < DAY || look.at_s < decided + HOUR {
            continue;
        }
        decided = look.at_s;
        let now = bounds(&peaks, look.at_s);
        let had = *request.get_or_insert_with(|| {
            set_at = look.at_s;
            now.target
        });
        let outside = had < now.lower || had > now.upper;
        let differs = (had - now.target).abs() >= LEAST_CHANGE * had;
        if outside || (differs && look.at_s - set_at >= LONG_LIVED_S) {
            restarts += look.replicas.len() as u32;
            (request, set_at) = (Some(now.target), look.at_s);
        }
    }
    let last = bounds(&peaks, looks.last().map_or(0.0, |look| look.at_s));
    Vertical { request: last.target as u64, lower: last.lower as u64, upper: last.upper as u64, restarts }
}

struct Bounds {
    target: f64,
    lower: f64,
    upper: f64,
}

fn bounds(peaks: &Peaks, now_s: f64) -> Bounds {
    // Days of history; the bounds are wide with little of it.
    let confidence = (now_s / DAY).max(1.0 / 24.0);
    let of = |part, factor: f64| (percentile(peaks, part) * MARGIN * factor).max(LEAST);
    Bounds {
        target: of(TARGET, 1.0),
        lower: of(LOWER, (1.0 + 0.001 / confidence).powi(-2)),
        upper: of(UPPER, 1.0 + 1.0 / confidence),
    }
}

/// The upper end of the bucket that has it.
fn percentile(peaks: &Peaks, part: f64) -> f64 {
    let mut buckets: BTreeMap<u32, f64> = BTreeMap::new();
    for &(at_s, bytes) in peaks.values() {
        let bucket = (bytes * (GROWTH - 1.0) / FIRST_BUCKET + 1.0).ln() / GROWTH.ln();
        *buckets.entry(bucket as u32).or_default() += (at_s / HALF_LIFE_S).exp2();
    }
    let total: f64 = buckets.values().sum();
    let mut below = 0.0;
    let found = buckets.into_iter().find(|(_, weight)| {
        below += weight;
        below >= part * total
    });
    let end = |bucket: u32| FIRST_BUCKET * (GROWTH.powi(bucket as i32 + 1) - 1.0) / (GROWTH - 1.0);
    found.map_or(0.0, |(bucket, _)| end(bucket))
}
