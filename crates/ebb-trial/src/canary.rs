//! Two or more running services side by side: from their samples to figures and a sentence.
//!
//! Used by `commands/compare` for `--live`. Pure. The time is cut into windows. In each the sides stood under
//! the same hour's traffic, so differences are taken window by window, in pairs, and their median is
//! resampled. Windows that one side was not there in are left out.

use super::cost::{Share, megabytes};
use super::summary;
use crate::results::sureness::Reading;
use crate::results::{
    Canary, Column, Difference, Figure, Measures, Metric, Run, Sample, Summary, Variant, Verdict, VerdictKind,
};
use ebb_statistics::slope::{self, Slope};
use std::collections::BTreeMap;

/// Windows of a whole watch: a day has one an hour.
const WINDOWS: usize = 24;
/// Fewer samples in a window say too little of its middle.
const LEAST_SAMPLES: usize = 3;
/// Columns that a window gives.
const COLUMNS: [Column; 6] = [Column::Peak, Column::Typical, Column::Floor, Column::Live, Column::Cgroup, Column::Cpu];

/// How a time is cut in which there were so many looks; fewer than `every_s` promises on a busy machine.
pub fn cut(seconds: f64, every_s: f64, looks: usize) -> Canary {
    let windows = (looks / LEAST_SAMPLES).clamp(1, WINDOWS);
    Canary { every_s, windows: windows as u32, window_s: seconds / windows as f64 }
}

/// Fills in summaries, slopes and measures of variants with one run each.
pub fn summarise(variants: &mut [Variant], canary: &Canary, metric: Metric) {
    let of = |variant: &Variant| variant.runs.first().map(|run| windows(run, canary, metric));
    let windows: Vec<Vec<Measures>> = variants.iter().map(|variant| of(variant).unwrap_or_default()).collect();
    let first = windows.first().cloned().unwrap_or_default();
    for (index, (variant, windows)) in variants.iter_mut().zip(&windows).enumerate() {
        let Some(run) = variant.runs.first_mut() else {
            continue;
        };
        run.slope = floors_slope(run, windows, canary);
        let peak = windows.iter().filter_map(|window| window.peak_bytes);
        run.measures = Measures {
            peak_bytes: peak.reduce(f64::max),
            slope_bytes_per_h: run.slope.map(|slope| slope.bytes_per_s * 3600.0),
            ..Measures::default()
        };
        let against = (index > 0).then_some(first.as_slice());
        variant.summary = summary_of(windows, run.measures.slope_bytes_per_h, against);
    }
}

/// What each window gives; nothing of one without enough samples.
fn windows(run: &Run, canary: &Canary, metric: Metric) -> Vec<Measures> {
    (0..canary.windows)
        .map(|window| {
            let from = f64::from(window) * canary.window_s;
            let inside = |sample: &&Sample| sample.at_s >= from && sample.at_s < from + canary.window_s;
            let samples: Vec<&Sample> = run.samples.iter().filter(inside).collect();
            measure(&samples, metric)
        })
        .collect()
}

fn measure(samples: &[&Sample], metric: Metric) -> Measures {
    let values = |pick: &dyn Fn(&Sample) -> Option<u64>| -> Vec<f64> {
        samples.iter().filter_map(|sample| pick(sample)).map(|bytes| bytes as f64).collect()
    };
    let memory = values(&|sample| metric.of(sample));
    if memory.len() < LEAST_SAMPLES.min(2) {
        return Measures::default();
    }
    let cpu: Vec<f64> = samples.iter().filter_map(|sample| sample.cpu_s).collect();
    Measures {
        peak_bytes: memory.iter().copied().reduce(f64::max),
        typical_bytes: ebb_statistics::median(&memory),
        floor_bytes: memory.iter().copied().reduce(f64::min),
        live_bytes: ebb_statistics::median(&values(&|sample| sample.live_bytes)),
        // Of the charge itself that would be the same column again.
        cgroup_bytes: ebb_statistics::median(&values(&|sample| sample.cgroup_bytes))
            .filter(|_| metric != Metric::Charge),
        cpu_s: Option::zip(cpu.first(), cpu.last()).map(|(first, last)| last - first),
        ..Measures::default()
    }
}

/// Of a service that was not restarted: after a restart memory begins anew.
fn floors_slope(run: &Run, windows: &[Measures], canary: &Canary) -> Option<Slope> {
    if !run.restarts.is_empty() {
        return None;
    }
    let floors: Vec<(f64, f64)> = windows
        .iter()
        .enumerate()
        .filter_map(|(at, window)| Some((at as f64 * canary.window_s, window.floor_bytes?)))
        .collect();
    slope::slope(&floors)
}

fn summary_of(windows: &[Measures], slope: Option<f64>, against: Option<&[Measures]>) -> Option<Summary> {
    let mut figures = BTreeMap::new();
    for column in COLUMNS {
        let values: Vec<f64> = windows.iter().filter_map(|window| column.of(window)).collect();
        let versus_first = against.and_then(|against| paired(column, windows, against));
        figures.extend(Figure::of(&values, versus_first).map(|figure| (column, figure)));
    }
    let slope: Vec<f64> = slope.into_iter().collect();
    figures.extend(Figure::of(&slope, None).map(|figure| (Column::Slope, figure)));
    let runs = figures.get(&Column::Typical)?.n;
    Some(Summary { runs, errors: 0, figures })
}

/// The median of the differences of the windows that both have.
fn paired(column: Column, windows: &[Measures], against: &[Measures]) -> Option<Difference> {
    let pairs: Vec<(f64, f64)> =
        windows.iter().zip(against).filter_map(|(of, against)| Some((column.of(of)?, column.of(against)?))).collect();
    let differences: Vec<f64> = pairs.iter().map(|(of, against)| of - against).collect();
    let before: Vec<f64> = pairs.iter().map(|(_, against)| *against).collect();
    let before = ebb_statistics::median(&before)?;
    let interval = ebb_statistics::paired_interval(&differences);
    Some(Difference {
        value: ebb_statistics::median(&differences)?,
        interval,
        reading: interval.map(|interval| summary::reading(column, before, interval)),
    })
}

/// Result of the watch: the second side against the first, the lowest where there are more.
pub fn judge(variants: &[Variant], canary: &Canary, metric: Metric) -> Verdict {
    let typical = |variant: &Variant| variant.median(Column::Typical);
    let Some((first, others)) = variants.split_first() else {
        return Verdict::not_enough("nothing was watched");
    };
    let Some(held) = typical(first) else {
        return Verdict::not_enough(&format!("the {} of {} could not be read", metric.label(), first.name));
    };
    let lowest = others
        .iter()
        .filter_map(|variant| Some((variant, typical(variant)?)))
        .min_by(|left, right| left.1.total_cmp(&right.1));
    let Some((other, other_held)) = lowest else {
        return Verdict::not_enough(&format!("no service except {} could be read", first.name));
    };
    let figure = other.figure(Column::Typical);
    let Some(difference) = figure.and_then(|figure| figure.versus_first) else {
        return Verdict::not_enough(&format!("{} and {} never ran at the same time", first.name, other.name));
    };
    let (Some((low, high)), Some(reading)) = (difference.interval, difference.reading) else {
        return Verdict::not_enough("fewer than two windows have figures of both services");
    };
    let windows = figure.map_or(0, |figure| figure.n);
    let over = format!("over {windows} windows of {}", words(canary.window_s));
    let (name, first_name) = (&other.name, &first.name);
    let interval = format!("{:+.0} … {:+.0} MB", low / 1e6, high / 1e6);
    match reading {
        Reading::NoRealDifference => Verdict::without_variant(
            VerdictKind::NoRealDifference,
            format!(
                "No real difference between {first_name} ({}) and {name} ({}): {interval} {over}.",
                megabytes(held),
                megabytes(other_held)
            ),
        ),
        Reading::Unclear => Verdict::not_enough(&format!(
            "the difference between {first_name} and {name} is not clear yet: {interval} {over}; watch longer"
        )),
        Reading::Real => {
            let lower = difference.value < 0.0;
            let (best, less, worst, more) = match lower {
                true => (name, other_held, first_name, held),
                false => (first_name, held, name, other_held),
            };
            Verdict {
                kind: VerdictKind::Recommend,
                variant: Some(best.clone()),
                sentence: format!(
                    "{best} holds {} where {worst} holds {}: {name} against {first_name} {interval} {over}.{}",
                    megabytes(less),
                    megabytes(more),
                    cpu(other)
                ),
            }
        }
    }
}

/// Why services are worse than the first: memory or CPU time differ, and by `share` of the first one's or more.
/// Where the interval reaches that share, it is not ruled out, and a canary has to rule it out.
pub fn worse(variants: &[Variant], share: f64) -> Vec<String> {
    let Some((first, others)) = variants.split_first() else {
        return Vec::new();
    };
    let of = |variant: &Variant, column: Column| {
        let before = first.median(column)?;
        let difference = variant.figure(column)?.versus_first?;
        let (low, high) = difference.interval?;
        let is_worse = difference.reading == Some(Reading::Real) && low > 0.0;
        let percent = |value: f64| 100.0 * value / before;
        (is_worse && high >= share * before).then(|| {
            let what = if column == Column::Cpu { "takes more CPU time" } else { "holds more memory" };
            format!(
                "{} {what} than {}: {:+.0} % ({:+.0} … {:+.0} %)",
                variant.name,
                first.name,
                percent(difference.value),
                percent(low),
                percent(high)
            )
        })
    };
    let columns = [Column::Typical, Column::Cpu];
    others.iter().flat_map(|it| columns.into_iter().filter_map(move |column| of(it, column))).collect()
}

fn cpu(variant: &Variant) -> String {
    let figure = variant.figure(Column::Cpu);
    let Some(share) = figure.and_then(|figure| Share::of(Column::Cpu, figure)) else {
        return String::new();
    };
    let interval = share.interval_in_words();
    match share.reading {
        Some(Reading::NoRealDifference) => format!(" No real difference in CPU time{interval}."),
        Some(Reading::Real) => {
            format!(" CPU time of {}: {:+.0} %{interval}.", variant.name, share.value * 100.0)
        }
        _ => format!(" The difference in CPU time is unclear{interval}."),
    }
}

/// "1 h", "30 min", "12 s".
fn words(seconds: f64) -> String {
    let whole = std::time::Duration::from_secs_f64(seconds.round().max(1.0));
    humantime::format_duration(whole).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::results::Restart;

    /// A side whose memory at a time is given, in MB, sampled every 10 s for 24 minutes.
    fn side(name: &str, memory: impl Fn(f64) -> Option<f64>, cpu_per_s: f64) -> Variant {
        let mut variant = example::trial().variants[0].clone();
        variant.name = name.into();
        variant.summary = None;
        variant.runs.truncate(1);
        variant.runs[0].samples = (0..144)
            .map(|at| f64::from(at) * 10.0)
            .filter_map(|at_s| {
                Some(Sample {
                    at_s,
                    rss_bytes: Some((memory(at_s)? * 1e6) as u64),
                    cpu_s: Some(at_s * cpu_per_s),
                    processes: 1,
                    ..Sample::default()
                })
            })
            .collect();
        variant
    }

    /// Traffic that comes and goes, the same for all.
    fn traffic(at_s: f64) -> f64 {
        60.0 * ((at_s / 400.0).sin() + 1.0)
    }

    fn watch(old: Variant, new: Variant) -> (Vec<Variant>, Verdict) {
        let canary = cut(1440.0, 10.0, 144);
        assert_eq!((canary.windows, canary.window_s), (24, 60.0));
        let mut variants = vec![old, new];
        summarise(&mut variants, &canary, Metric::Rss);
        let verdict = judge(&variants, &canary, Metric::Rss);
        (variants, verdict)
    }

    #[test]
    fn the_lower_side_is_recommended_where_the_difference_is_clear() {
        let mut random = fastrand::Rng::with_seed(9);
        let noise: Vec<f64> = (0..24).map(|_| 200.0 * random.f64()).collect();
        let noisy = move |at: f64| 200.0 + noise[(at / 60.0) as usize];
        type Memory = Box<dyn Fn(f64) -> f64>;
        type Case = (Memory, Memory, f64, VerdictKind, Option<&'static str>, &'static str);
        let cases: [Case; 4] = [
            (
                Box::new(|at| 300.0 + traffic(at)),
                Box::new(|at| 270.0 + traffic(at)),
                0.5,
                VerdictKind::Recommend,
                Some("new"),
                "-30 … -30 MB over 24 windows of 1m. No real difference in CPU time (+0 … +0 %).",
            ),
            (
                Box::new(|_| 100.0),
                Box::new(|_| 180.0),
                0.9,
                VerdictKind::Recommend,
                Some("old"),
                "old holds 100 MB where new holds 180 MB: new against old +80 … +80 MB over 24 windows of 1m. \
             CPU time of new: +80 % (+80 … +80 %).",
            ),
            (
                Box::new(|at| 300.0 + traffic(at)),
                Box::new(|at| 301.0 + traffic(at)),
                0.5,
                VerdictKind::NoRealDifference,
                None,
                "No real difference between old",
            ),
            (Box::new(|_| 300.0), Box::new(noisy), 0.5, VerdictKind::NotEnough, None, "watch longer"),
        ];
        for (old, new, cpu, kind, variant, words) in cases {
            let (variants, verdict) = watch(side("old", |at| Some(old(at)), 0.5), side("new", |at| Some(new(at)), cpu));
            assert!(verdict.sentence.contains(words), "{}", verdict.sentence);
            assert_eq!((verdict.kind, verdict.variant.as_deref()), (kind, variant), "{words}");
            let figures = &variants[1].summary.as_ref().unwrap().figures;
            assert_eq!(figures[&Column::Typical].n, 24);
            assert!(figures[&Column::Floor].median <= figures[&Column::Typical].median);
        }
    }

    #[test]
    fn windows_without_one_side_are_left_out_and_a_restart_ends_the_slope() {
        let growing = |at: f64| Some(100.0 + at / 60.0);
        let mut old = side("old", growing, 0.5);
        let new = side("new", |at| (at > 700.0).then_some(50.0), 0.5);
        let (variants, _) = watch(old.clone(), new);
        let slope = variants[0].runs[0].slope.unwrap();
        assert!((slope.bytes_per_s * 60.0 - 1e6).abs() < 1e4, "{slope:?}");
        let difference = variants[1].summary.as_ref().unwrap().figures[&Column::Typical];
        assert_eq!(difference.n, 12, "a window with one look tells nothing");
        old.runs[0].restarts.push(Restart { at_s: 300.0, text: "restarted".into() });
        let (variants, _) = watch(old, side("new", |_| Some(50.0), 0.5));
        assert_eq!(variants[0].runs[0].slope, None);
    }

    #[test]
    fn what_is_a_tenth_worse_is_refused_with_the_reason() {
        let mut random = fastrand::Rng::with_seed(3);
        for (factor, cpu, expected) in [
            (1.1, 0.5, &["new holds more memory than old: +1"][..]),
            (1.04, 0.5, &[]),
            (0.8, 0.6, &["new takes more CPU time than old: +20 % (+20 … +20 %)"]),
        ] {
            let noise: Vec<f64> = (0..300).map(|_| 1.0 + 0.02 * random.f64()).collect();
            let memory = |factor: f64, from: usize| {
                let noise = noise.clone();
                move |at: f64| Some(factor * 300.0 * noise[from + at as usize / 10])
            };
            let old = side("old", memory(1.0, 0), 0.5);
            let (variants, _) = watch(old, side("new", memory(factor, 150), cpu));
            let found = worse(&variants, 0.10);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(it, start)| it.starts_with(start)), "{found:?}");
        }
    }

    #[test]
    fn nothing_seen_is_not_enough() {
        let (_, verdict) = watch(side("old", |_| Some(1.0), 0.1), side("new", |_| None, 0.1));
        assert_eq!(verdict.kind, VerdictKind::NotEnough);
        assert_eq!(cut(6.0, 1.0, 6).windows, 2);
        assert_eq!(cut(1.0, 1.0, 1).windows, 1);
    }
}
