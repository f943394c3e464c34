//! Figures from hand-made runs.

use super::*;
use crate::results::{Live, LoadResult, Outcome, Trim};

fn sample(at_s: f64, megabytes: u64) -> Sample {
    Sample {
        at_s,
        rss_bytes: Some(megabytes * 1_000_000),
        cpu_s: Some(10.0 + at_s / 2.0),
        cpu_system_s: Some(3.0 + at_s / 10.0),
        faults: Some(500 + (at_s * 100.0).round() as u64),
        refaults: Some(20 + (at_s * 10.0).round() as u64),
        processes: 1,
        ..Sample::default()
    }
}

fn span(kind: PhaseKind, from_s: f64, to_s: f64, load: Option<LoadResult>) -> PhaseSpan {
    PhaseSpan { name: kind.label().into(), kind, round: 1, from_s, to_s, load }
}

fn requests(requests: u64, seconds: f64) -> Option<LoadResult> {
    Some(LoadResult { requests, errors: 1, seconds, latency_ms: None, ..LoadResult::default() })
}

/// Warm-up to 50 MB, a burst to 400, a rest that ends at `rested`, a reload that is not the rest.
fn run(rested: u64) -> Run {
    let mut run = Run {
        ready_after_s: Some(0.2),
        phases: vec![
            span(PhaseKind::Warmup, 0.0, 2.0, requests(1000, 1.0)),
            span(PhaseKind::Burst, 2.0, 4.0, requests(10, 2.0)),
            span(PhaseKind::Idle, 4.0, 8.0, None),
        ],
        samples: vec![
            sample(0.0, 40),
            sample(1.5, 50),
            sample(1.9, 50),
            sample(3.0, 400),
            sample(5.0, 300),
            sample(7.2, rested),
            sample(7.5, rested),
            sample(7.9, rested),
            sample(8.4, 20),
        ],
        ..Run::new(1)
    };
    run.measures = measure(&run, Metric::Rss);
    run
}

#[test]
fn the_columns_are_what_the_manual_says() {
    let measures = run(120).measures;
    assert_eq!(measures.baseline_bytes, Some(50e6), "end of the warm-up");
    assert_eq!(measures.peak_bytes, Some(400e6));
    assert_eq!(measures.after_rest_bytes, Some(120e6), "last second of the rest");
    assert_eq!(measures.growth_bytes, Some(70e6));
    assert_eq!(measures.throughput_per_s, Some(5.0), "the warm-up does not count");
    let cpu_s = measures.cpu_s.unwrap();
    assert!((cpu_s - 3.95).abs() < 1e-9, "to the end of the last phase: {cpu_s}");
    let system_s = measures.cpu_system_s.unwrap();
    assert!((system_s - 0.79).abs() < 1e-9, "a part of that: {system_s}");
    assert_eq!(measures.page_faults, Some(790.0));
    assert_eq!(measures.refaults, Some(79.0));
    assert_eq!(measures.reclaimable_bytes, None, "not measured is not 0");
    assert_eq!(measures.p50_ms, None);
    assert_eq!(measures.live_bytes, None);
}

#[test]
fn marks_trim_and_live_are_taken_where_they_are() {
    let mut run = run(120);
    let mark =
        |name: &str, round, bytes| Mark { name: name.into(), round, at_s: 1.0, bytes: Some(bytes) };
    run.marks = vec![
        mark(BASELINE, 1, 30),
        mark(AFTER_REST, 1, 70),
        mark(AFTER_REST, 2, 90),
        mark("other", 1, 1),
    ];
    run.trim = Some(Trim { before_bytes: 100, after_bytes: 64 });
    run.live = vec![Live { at_s: 8.01, bytes: 33 }];
    let measures = measure(&run, Metric::Rss);
    assert_eq!((measures.baseline_bytes, measures.after_rest_bytes), (Some(30.0), Some(90.0)));
    assert_eq!(measures.growth_bytes, Some(60.0));
    assert_eq!((measures.reclaimable_bytes, measures.live_bytes), (Some(36.0), Some(33.0)));
    run.live.clear();
    run.samples[7].live_bytes = Some(44);
    assert_eq!(measure(&run, Metric::Rss).live_bytes, Some(44.0));
}

#[test]
fn what_nobody_measured_is_not_0() {
    let mut run = run(120);
    run.samples.iter_mut().for_each(|sample| sample.refaults = None);
    assert_eq!(measure(&run, Metric::Rss).refaults, None);
    let measures = measure(&run, Metric::Pss);
    assert_eq!((measures.peak_bytes, measures.after_rest_bytes), (None, None));
    // As an earlier version wrote them, which had no such field.
    let mut written = serde_json::to_value(run.measures).unwrap();
    assert!(written.as_object_mut().unwrap().remove("refaults").is_some());
    let measures: Measures = serde_json::from_value(written).unwrap();
    assert_eq!((measures.refaults, measures.page_faults), (None, Some(790.0)));
}

fn variant(name: &str, runs: Vec<Run>) -> Variant {
    Variant { runs, ..Variant::new(name, name) }
}

#[test]
fn runs_become_median_spread_and_difference_to_the_first() {
    let discarded =
        Run { outcome: Outcome::Discarded { reason: "not in charge".into() }, ..run(999) };
    let mut variants = [
        variant("glibc", vec![run(300), run(310), run(290), discarded]),
        variant("other", vec![run(80), run(84), run(82)]),
        variant("once", vec![run(81)]),
        variant("none", Vec::new()),
    ];
    summarise(&mut variants);
    let [first, other, once, none] = variants.map(|variant| variant.summary);
    let first = first.unwrap().figures[&Column::AfterRest];
    assert_eq!((first.n, first.median, first.min, first.max), (3, 300e6, 290e6, 310e6));
    assert_eq!(first.versus_first, None);
    let other = other.unwrap();
    let difference = other.figures[&Column::AfterRest].versus_first.unwrap();
    assert_eq!(difference.value, -218e6);
    let (low, high) = difference.interval.unwrap();
    assert!(low <= -218e6 && high >= -218e6 && low >= -230e6 && high <= -206e6, "{low} {high}");
    assert_eq!(other.errors, 6, "two loads with an error each in three runs");
    let once = once.unwrap().figures[&Column::AfterRest];
    assert_eq!(once.versus_first.unwrap().interval, None, "direction only");
    assert!(none.is_none());
}
