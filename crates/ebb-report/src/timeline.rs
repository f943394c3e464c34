//! One time axis for many runs: memory over time, one line per variant with the band of its runs.
//!
//! Used by the chart. A burst takes a little longer on one allocator than on another, so runs do not
//! lie on top of each other by the clock. Each phase is stretched to the median length that it had over
//! all complete runs; within a phase time is proportional. Pure.

use super::drawing::{Stroke, strokes};
use ebb_trial::results::{Metric, PhaseKind, PhaseSpan, Run, Sample, Trial, Variant};

/// Points of a line. More than the widest plot has pixels to tell apart would only make the file bigger.
const POINTS: usize = 480;

/// A phase on the common axis.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseBand {
    pub name: String,
    pub kind: PhaseKind,
    /// Round of the cycle, counted from one.
    pub round: u32,
    pub from_s: f64,
    pub to_s: f64,
}

/// A variant's line: (seconds, MB) with the lowest and highest run at each point.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    pub variant: usize,
    pub name: String,
    pub stroke: Stroke,
    pub median: Vec<(f64, f64)>,
    /// Recommended by the verdict: drawn stronger.
    pub best: bool,
    /// Lowest and highest run; empty with one run.
    pub band: Vec<(f64, f64, f64)>,
    /// Live heap where it is known.
    pub live: Vec<(f64, f64)>,
    /// The workload told it, at the ends of the rests only.
    pub live_is_known: bool,
    /// Restarts of a service that was watched.
    pub restarts: Vec<(f64, String)>,
}

/// The common axis with all lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeline {
    pub shades: Vec<PhaseBand>,
    /// The variants that have a complete run.
    pub lines: Vec<Line>,
    pub end_s: f64,
    /// The highest value of any line or band.
    pub highest_mb: f64,
    /// What the times count from.
    pub since: &'static str,
}

impl Timeline {
    /// Makes the axis and the lines from the complete runs of a trial.
    pub fn of(trial: &Trial) -> Timeline {
        let runs: Vec<&Run> = trial.variants.iter().flat_map(Variant::complete).collect();
        let shades = common_axis(&runs);
        let end_s = shades.last().map_or(0.0, |shade| shade.to_s);
        let strokes = strokes(&trial.variants);
        let lines: Vec<Line> = trial
            .variants
            .iter()
            .enumerate()
            .filter(|(_, variant)| variant.complete().next().is_some())
            .map(|(index, variant)| Line {
                best: trial.recommends(&variant.name),
                stroke: strokes[index],
                ..line(index, variant, &shades, end_s, trial.metric)
            })
            .collect();
        let since = match trial.canary {
            Some(_) => "since the beginning",
            None => "after readiness",
        };
        Timeline { shades, end_s, ..Timeline::of_lines(lines, since) }
    }

    /// Lines that end at different times, without phases.
    pub fn of_lines(lines: Vec<Line>, since: &'static str) -> Timeline {
        let highest = |line: &Line| {
            let band = line.band.iter().map(|(_, _, high)| *high);
            line.median.iter().map(|(_, mb)| *mb).chain(band).fold(0.0, f64::max)
        };
        let highest_mb = lines.iter().map(highest).fold(0.0, f64::max);
        let ends = lines.iter().filter_map(|line| line.median.last()).map(|(at_s, _)| *at_s);
        Timeline { end_s: ends.fold(0.0, f64::max), shades: Vec::new(), lines, highest_mb, since }
    }
}

impl Line {
    /// Of one curve, which is condensed where it has more points than a plot can show.
    pub fn of_one(curve: Vec<(f64, f64)>) -> Line {
        let end_s = curve.last().map_or(0.0, |(at_s, _)| *at_s);
        let (median, band) = if curve.len() > 2 * POINTS { condensed(&curve, end_s) } else { (curve, Vec::new()) };
        Line { median, band, ..Line::default() }
    }
}

/// Each phase with the median length over the runs; complete runs all have the same phases.
fn common_axis(runs: &[&Run]) -> Vec<PhaseBand> {
    let Some(first) = runs.first() else {
        return Vec::new();
    };
    let mut from_s = 0.0;
    first
        .phases
        .iter()
        .enumerate()
        .map(|(index, span)| {
            let mut lengths: Vec<f64> =
                runs.iter().filter_map(|run| run.phases.get(index)).map(|span| span.to_s - span.from_s).collect();
            lengths.sort_by(f64::total_cmp);
            let to_s = from_s + lengths[lengths.len() / 2];
            let shade = PhaseBand { name: span.name.clone(), kind: span.kind, round: span.round, from_s, to_s };
            from_s = to_s;
            shade
        })
        .collect()
}

/// A moment of a run on the common axis; `None` outside of its phases.
fn onto_axis(at_s: f64, phases: &[PhaseSpan], shades: &[PhaseBand]) -> Option<f64> {
    let index = phases.iter().position(|span| at_s <= span.to_s)?;
    let (span, shade) = (&phases[index], shades.get(index)?);
    let length = span.to_s - span.from_s;
    let share = if length > 0.0 { ((at_s - span.from_s) / length).clamp(0.0, 1.0) } else { 0.0 };
    Some(shade.from_s + share * (shade.to_s - shade.from_s))
}

fn line(index: usize, variant: &Variant, shades: &[PhaseBand], end_s: f64, metric: Metric) -> Line {
    let curve = |run: &Run, pick: &dyn Fn(&Sample) -> Option<u64>| -> Vec<(f64, f64)> {
        let on_axis =
            |sample: &Sample| Some((onto_axis(sample.at_s, &run.phases, shades)?, pick(sample)? as f64 / 1e6));
        run.samples.iter().filter_map(on_axis).collect()
    };
    let curves: Vec<Vec<(f64, f64)>> = variant
        .complete()
        .map(|run| curve(run, &|sample| metric.of(sample)))
        .filter(|curve| !curve.is_empty())
        .collect();
    let mut line = Line {
        variant: index,
        name: variant.name.clone(),
        restarts: variant
            .complete()
            .flat_map(|run| &run.restarts)
            .map(|restart| (restart.at_s, restart.text.clone()))
            .collect(),
        ..Line::default()
    };
    if let [only] = curves.as_slice()
        && only.len() > 2 * POINTS
    {
        line = Line { variant: line.variant, name: line.name, restarts: line.restarts, ..Line::of_one(only.clone()) };
    }
    let points = if line.median.is_empty() { POINTS + 1 } else { 0 };
    for point in 0..points {
        let at_s = end_s * point as f64 / POINTS as f64;
        let mut values: Vec<f64> = curves.iter().filter_map(|curve| value_at(curve, at_s)).collect();
        values.sort_by(f64::total_cmp);
        let (Some(low), Some(high)) = (values.first(), values.last()) else {
            continue;
        };
        line.median.extend(ebb_statistics::median(&values).map(|median| (at_s, median)));
        if curves.len() > 1 {
            line.band.push((at_s, *low, *high));
        }
    }
    if let Some(run) = variant.complete().next() {
        line.live = curve(run, &|sample| sample.live_bytes);
        if line.live.is_empty() {
            line.live_is_known = true;
            // Told at the end of a rest, so a little after it on the clock: it belongs to the rest.
            let told = run.live.iter().filter_map(|live| {
                let rest =
                    run.phases.iter().rposition(|span| span.kind == PhaseKind::Idle && span.to_s <= live.at_s)?;
                Some((shades.get(rest)?.to_s, live.bytes as f64 / 1e6))
            });
            line.live = told.collect();
        }
    }
    line
}

/// One long run, moment by moment: the median of each moment's samples, the lowest and the highest.
#[allow(clippy::type_complexity)]
fn condensed(curve: &[(f64, f64)], end_s: f64) -> (Vec<(f64, f64)>, Vec<(f64, f64, f64)>) {
    let mut moments: Vec<Vec<f64>> = vec![Vec::new(); POINTS];
    for (at_s, mb) in curve {
        let moment = (at_s / end_s * POINTS as f64) as usize;
        moments[moment.min(POINTS - 1)].push(*mb);
    }
    let (mut middle, mut band) = (Vec::new(), Vec::new());
    for (at, values) in moments.iter_mut().enumerate() {
        let at_s = end_s * (at as f64 + 0.5) / POINTS as f64;
        values.sort_by(f64::total_cmp);
        let (Some(low), Some(high)) = (values.first(), values.last()) else {
            continue;
        };
        middle.push((at_s, values[values.len() / 2]));
        band.push((at_s, *low, *high));
    }
    (middle, band)
}

/// Straight between two samples.
pub(super) fn value_at(curve: &[(f64, f64)], at_s: f64) -> Option<f64> {
    let after = curve.partition_point(|(time, _)| *time < at_s);
    match (after.checked_sub(1).and_then(|before| curve.get(before)), curve.get(after)) {
        (Some(left), Some(right)) if right.0 > left.0 => {
            Some(left.1 + (right.1 - left.1) * (at_s - left.0) / (right.0 - left.0))
        }
        (_, Some(point)) | (Some(point), None) => Some(point.1),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_trial::example;

    #[test]
    fn phases_of_different_length_lie_on_one_axis() {
        let trial = example::trial();
        let timeline = Timeline::of(&trial);
        let names: Vec<_> = timeline.shades.iter().map(|shade| shade.name.as_str()).collect();
        assert_eq!(names, ["warm-up", "burst", "rest"]);
        assert!(timeline.shades.windows(2).all(|pair| pair[0].to_s == pair[1].from_s));
        // glibc's burst takes 2 s, the other's 4 s: in the middle of it both are at their peak.
        let burst = &timeline.shades[1];
        for line in &timeline.lines {
            let middle = value_at(&line.median, f64::midpoint(burst.from_s, burst.to_s)).unwrap();
            assert!((395.0..=415.0).contains(&middle), "{}: {middle}", line.name);
        }
    }

    #[test]
    fn variants_without_a_complete_run_have_no_line_and_one_run_has_no_band() {
        let timeline = Timeline::of(&example::trial());
        let names: Vec<_> = timeline.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["glibc", "ebbmalloc"]);
        assert!(!timeline.lines[0].band.is_empty());
        assert!(timeline.highest_mb > 400.0 && timeline.highest_mb < 420.0);
        let mut once = example::trial();
        once.variants[0].runs.truncate(1);
        assert!(Timeline::of(&once).lines[0].band.is_empty());
        once.variants.clear();
        let empty = Timeline::of(&once);
        assert!(empty.lines.is_empty() && empty.shades.is_empty() && empty.end_s == 0.0);
    }

    #[test]
    fn a_long_run_keeps_its_peaks_in_the_band() {
        let mut trial = example::trial();
        trial.variants.truncate(1);
        let run = &mut trial.variants[0].runs[0];
        let sample = run.samples[0];
        let end_s = run.phases[2].to_s;
        run.samples = (0..5000)
            .map(|at| Sample {
                at_s: end_s * f64::from(at) / 5000.0,
                rss_bytes: Some(if at == 2503 { 900_000_000 } else { 100_000_000 }),
                ..sample
            })
            .collect();
        trial.variants[0].runs.truncate(1);
        let timeline = Timeline::of(&trial);
        assert_eq!(timeline.highest_mb, 900.0);
        assert!(timeline.lines[0].median.iter().all(|(_, mb)| *mb == 100.0));
    }
}
