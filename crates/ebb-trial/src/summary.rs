//! From samples to figures: what one run measured, what the runs of a variant come to.
//!
//! Used by `run` at its end and by the engine after the last run. Pure.

use super::load;
use crate::results::sureness::Reading;
use crate::results::{
    Column, Difference, Figure, Mark, Measures, Metric, PhaseKind, PhaseSpan, Run, Sample, Summary, Unit, Variant,
};
use ebb_statistics::slope::{self, Slope};
use std::collections::BTreeMap;

/// A mark with this name sets the column "baseline".
pub const BASELINE: &str = "baseline";
/// A mark with this name sets the column "after rest".
pub const AFTER_REST: &str = "after_rest";

/// A difference within this share of what it is compared to is too small to matter ...
const SMALL_SHARE: f64 = 0.05;
/// ... and so is one of memory within this: two runs of one variant differ by as much.
pub const SMALL_BYTES: f64 = 3e6;
/// ... and one of CPU time within two ticks of the clock that it is counted by.
const SMALL_SECONDS: f64 = 0.02;
/// Rests before this round do not count for the slope: the first fills caches.
const SLOPE_FROM_ROUND: u32 = 2;

/// Memory at the end of a span: the median over its last second (the whole span where it is shorter),
/// so that one sample in the middle of a purge decides nothing.
pub fn memory_at_end(samples: &[Sample], metric: Metric, from_s: f64, to_s: f64) -> Option<f64> {
    let from_s = from_s.max(to_s - 1.0);
    let inside = |sample: &&Sample| sample.at_s >= from_s && sample.at_s <= to_s;
    let values: Vec<f64> =
        samples.iter().filter(inside).filter_map(|sample| metric.of(sample)).map(|bytes| bytes as f64).collect();
    // A span shorter than the sampling interval: the last sample before its end.
    ebb_statistics::median(&values).or_else(|| {
        let before = samples.iter().rev().find(|sample| sample.at_s <= to_s)?;
        metric.of(before).map(|bytes| bytes as f64)
    })
}

/// The figures of a run from what was recorded.
pub fn measure(run: &Run, metric: Metric) -> Measures {
    let at_end = |span: &PhaseSpan| memory_at_end(&run.samples, metric, span.from_s, span.to_s);
    let marked = |name: &str| -> Option<&Mark> { run.marks.iter().rev().find(|mark| mark.name == name) };
    let last = |kind: PhaseKind| run.phases.iter().rev().find(|span| span.kind == kind);

    let baseline = match marked(BASELINE) {
        Some(mark) => mark.bytes.map(|bytes| bytes as f64),
        None => match last(PhaseKind::Warmup) {
            Some(warmup) => at_end(warmup),
            None => run.samples.first().and_then(|sample| metric.of(sample)).map(|bytes| bytes as f64),
        },
    };
    let rest = last(PhaseKind::Idle);
    let after_rest = match marked(AFTER_REST) {
        Some(mark) => mark.bytes.map(|bytes| bytes as f64),
        None => rest.and_then(at_end),
    };
    let peak = run.samples.iter().filter_map(|sample| metric.of(sample)).max().map(|bytes| bytes as f64);
    let loads: Vec<_> = run.loads().collect();
    let latency = load::latency(&loads);
    Measures {
        baseline_bytes: baseline,
        peak_bytes: peak,
        after_rest_bytes: after_rest,
        growth_bytes: Option::zip(after_rest, baseline).map(|(after, before)| after - before),
        reclaimable_bytes: run.trim.map(|trim| trim.before_bytes as f64 - trim.after_bytes as f64),
        live_bytes: rest.and_then(|rest| live_at(run, rest)),
        cpu_s: in_phases(run, |sample| sample.cpu_s),
        cpu_system_s: in_phases(run, |sample| sample.cpu_system_s),
        page_faults: in_phases(run, |sample| sample.faults.map(|faults| faults as f64)),
        refaults: in_phases(run, |sample| sample.refaults.map(|pages| pages as f64)),
        throughput_per_s: load::throughput(&loads),
        p50_ms: latency.map(|quantiles| quantiles.p50),
        p99_ms: latency.and_then(|quantiles| quantiles.p99),
        slope_bytes_per_h: rest_slope(run, metric).map(|slope| slope.bytes_per_s * 3600.0),
        health_max_ms: run.health.iter().filter_map(|answer| answer.latency_ms).max_by(f64::total_cmp),
        throttled_s: run.throttled_s,
        // Those of windows.
        ..Measures::default()
    }
}

/// How the memory at the end of the rests moves from round to round; `None` with fewer rounds than an
/// interval needs.
pub fn rest_slope(run: &Run, metric: Metric) -> Option<Slope> {
    let last = run.phases.iter().rev().find(|span| span.kind == PhaseKind::Idle)?;
    let floors: Vec<(f64, f64)> = run
        .phases
        .iter()
        .filter(|span| span.name == last.name && span.round >= SLOPE_FROM_ROUND)
        .filter_map(|span| {
            let floor = memory_at_end(&run.samples, metric, span.from_s, span.to_s)?;
            Some((span.to_s, floor))
        })
        .collect();
    slope::slope(&floors)
}

/// How a difference to `before` is to be read, by its interval.
pub fn reading(column: Column, before: f64, interval: (f64, f64)) -> Reading {
    let least = match column.unit() {
        Unit::Bytes | Unit::BytesPerHour => SMALL_BYTES,
        Unit::Seconds => SMALL_SECONDS,
        Unit::PerSecond | Unit::Milliseconds | Unit::Count => 0.0,
    };
    let small = least.max(before.abs() * SMALL_SHARE);
    Reading::of(interval, small)
}

/// The difference of two sides, with its interval and how it is to be read; `None` where one is empty.
pub fn difference(column: Column, of: &[f64], against: &[f64]) -> Option<Difference> {
    let before = ebb_statistics::median(against)?;
    let interval = ebb_statistics::difference_interval(of, against);
    Some(Difference {
        value: ebb_statistics::median(of)? - before,
        interval,
        reading: interval.map(|interval| reading(column, before, interval)),
    })
}

/// Live heap at the end of a rest: as reported by the workload, else as a reader of the allocator did.
fn live_at(run: &Run, rest: &PhaseSpan) -> Option<f64> {
    // The workload is asked when the phase has ended, so its answer comes a little after.
    let told = run.live.iter().rev().find(|live| live.at_s >= rest.from_s);
    told.map(|live| live.bytes as f64).or_else(|| {
        let inside = |sample: &&Sample| sample.at_s >= rest.from_s && sample.at_s <= rest.to_s;
        let last = run.samples.iter().rev().filter(inside).find_map(|sample| sample.live_bytes)?;
        Some(last as f64)
    })
}

/// By how much a counter grew from the first sample to the last one within the phases.
fn in_phases(run: &Run, counter: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let end = run.phases.last()?.to_s;
    let first = run.samples.iter().find_map(&counter)?;
    let last = run.samples.iter().rev().filter(|sample| sample.at_s <= end).find_map(&counter)?;
    Some(last - first)
}

/// Fills in the summaries of all variants; the first is what the others are compared to.
pub fn summarise(variants: &mut [Variant]) {
    let Some(first) = variants.first() else {
        return;
    };
    let first: BTreeMap<Column, Vec<f64>> =
        Column::ALL.iter().map(|column| (*column, values(first, *column))).collect();
    for (index, variant) in variants.iter_mut().enumerate() {
        variant.summary = summary_of(variant, (index > 0).then_some(&first));
    }
}

/// The figures of a column in the runs that count.
pub fn values(variant: &Variant, column: Column) -> Vec<f64> {
    variant.complete().filter_map(|run| column.of(&run.measures)).collect()
}

fn summary_of(variant: &Variant, first: Option<&BTreeMap<Column, Vec<f64>>>) -> Option<Summary> {
    let runs = variant.complete().count() as u32;
    if runs == 0 {
        return None;
    }
    let errors = variant.complete().flat_map(|run| &run.phases).filter_map(|span| span.load.as_ref());
    let mut summary = Summary { runs, errors: errors.map(|load| load.errors).sum(), figures: BTreeMap::new() };
    for column in Column::ALL {
        let values = values(variant, *column);
        let against = first.and_then(|first| first.get(column)).filter(|against| !against.is_empty());
        let versus_first = against.and_then(|against| difference(*column, &values, against));
        let figure = Figure::of(&values, versus_first);
        summary.figures.extend(figure.map(|figure| (*column, figure)));
    }
    Some(summary)
}

#[cfg(test)]
mod tests {
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
        let mark = |name: &str, round, bytes| Mark { name: name.into(), round, at_s: 1.0, bytes: Some(bytes) };
        run.marks = vec![mark(BASELINE, 1, 30), mark(AFTER_REST, 1, 70), mark(AFTER_REST, 2, 90), mark("other", 1, 1)];
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
        let discarded = Run { outcome: Outcome::Discarded { reason: "not in charge".into() }, ..run(999) };
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
}
