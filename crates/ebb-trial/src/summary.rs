//! From samples to figures: what one run measured, what the runs of a variant come to.
//!
//! Used by `run` at its end and by the engine after the last run. Pure.

use super::load;
use crate::results::sureness::Reading;
use crate::results::{
    Column, Difference, Figure, Mark, Measures, Metric, PhaseKind, PhaseSpan, Run, Sample, Summary,
    Unit, Variant,
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
    let values: Vec<f64> = samples
        .iter()
        .filter(inside)
        .filter_map(|sample| metric.of(sample))
        .map(|bytes| bytes as f64)
        .collect();
    // A span shorter than the sampling interval: the last sample before its end.
    ebb_statistics::median(&values).or_else(|| {
        let before = samples.iter().rev().find(|sample| sample.at_s <= to_s)?;
        metric.of(before).map(|bytes| bytes as f64)
    })
}

/// The figures of a run from what was recorded.
pub fn measure(run: &Run, metric: Metric) -> Measures {
    let at_end = |span: &PhaseSpan| memory_at_end(&run.samples, metric, span.from_s, span.to_s);
    let marked =
        |name: &str| -> Option<&Mark> { run.marks.iter().rev().find(|mark| mark.name == name) };
    let last = |kind: PhaseKind| run.phases.iter().rev().find(|span| span.kind == kind);

    let baseline = match marked(BASELINE) {
        Some(mark) => mark.bytes.map(|bytes| bytes as f64),
        None => match last(PhaseKind::Warmup) {
            Some(warmup) => at_end(warmup),
            None => {
                run.samples.first().and_then(|sample| metric.of(sample)).map(|bytes| bytes as f64)
            }
        },
    };
    let rest = last(PhaseKind::Idle);
    let after_rest = match marked(AFTER_REST) {
        Some(mark) => mark.bytes.map(|bytes| bytes as f64),
        None => rest.and_then(at_end),
    };
    let peak =
        run.samples.iter().filter_map(|sample| metric.of(sample)).max().map(|bytes| bytes as f64);
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
        health_max_ms: run
            .health
            .iter()
            .filter_map(|answer| answer.latency_ms)
            .max_by(f64::total_cmp),
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
    let errors =
        variant.complete().flat_map(|run| &run.phases).filter_map(|span| span.load.as_ref());
    let mut summary =
        Summary { runs, errors: errors.map(|load| load.errors).sum(), figures: BTreeMap::new() };
    for column in Column::ALL {
        let values = values(variant, *column);
        let against =
            first.and_then(|first| first.get(column)).filter(|against| !against.is_empty());
        let versus_first = against.and_then(|against| difference(*column, &values, against));
        let figure = Figure::of(&values, versus_first);
        summary.figures.extend(figure.map(|figure| (*column, figure)));
    }
    Some(summary)
}

#[cfg(test)]
mod tests;
