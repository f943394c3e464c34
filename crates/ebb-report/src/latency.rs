//! How the latencies are distributed: of all complete runs of a variant together, as its loads' histograms
//! tell.
//!
//! Used by the tables and the page. A variant one of whose loads gave no histogram has no distribution: a
//! part would be taken for the whole. Pure.

use super::drawing::{Size, Stroke, fill, path, strokes, tenths};
use ebb_trial::results::{Run, Trial, Variant};
use serde_json::json;

/// The quantiles of the table.
pub const QUANTILES: [(&str, f64); 5] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("slowest", 1.0)];

/// The latencies of one variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// The index of the variant in the trial.
    pub variant: usize,
    /// Its name.
    pub name: String,
    /// How its line is drawn.
    pub stroke: Stroke,
    /// Upper bound in milliseconds and the number of requests in the cell.
    pub cells: Vec<(f64, u64)>,
}

impl Distribution {
    /// A quantile in milliseconds.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        ebb_statistics::histogram_quantile(&self.cells, quantile)
    }

    /// (milliseconds, share of the requests that took at most that).
    fn shares(&self) -> Vec<(f64, f64)> {
        let total: u64 = self.cells.iter().map(|(_, count)| count).sum();
        let mut below = 0;
        let cells = self.cells.iter().filter(|(_, count)| *count > 0);
        cells
            .map(|(upper, count)| {
                below += count;
                (*upper, below as f64 / total.max(1) as f64)
            })
            .collect()
    }
}

/// Those of all variants that have one.
pub fn of(trial: &Trial) -> Vec<Distribution> {
    let strokes = strokes(&trial.variants);
    let one = |(variant, facts): (usize, &Variant)| {
        let loads = facts.complete().flat_map(Run::loads);
        let cells: Option<Vec<_>> = loads.map(|load| load.histogram_ms.as_ref()).collect();
        let cells = ebb_statistics::merge_cells(cells?.into_iter().flatten());
        let any = cells.iter().any(|(upper, count)| *count > 0 && *upper > 0.0);
        any.then(|| Distribution { variant, name: facts.name.clone(), stroke: strokes[variant], cells })
    };
    trial.variants.iter().enumerate().filter_map(one).collect()
}

/// Draws them as shares over a logarithmic axis; empty without one.
pub fn draw(distributions: &[Distribution], size: Size) -> Result<String, minijinja::Error> {
    let curves: Vec<Vec<(f64, f64)>> = distributions.iter().map(Distribution::shares).collect();
    let bounds = || curves.iter().flatten().map(|(ms, _)| *ms).filter(|ms| *ms > 0.0);
    let (Some(low), Some(high)) = (bounds().reduce(f64::min), bounds().reduce(f64::max)) else {
        return Ok(String::new());
    };
    // One more decade where all lie in one point.
    let (low, high) = (low / 1.5, high.max(low * 1.5));
    let (left, right) = (size.left, size.width - size.left / 2.0);
    let x = |ms: f64| tenths(left + (ms.max(low) / low).ln() / (high / low).ln() * (right - left));
    let y = |share: f64| tenths(size.top + (1.0 - share) * (size.bottom_edge() - size.top));
    // 99 % would stand on 90 %.
    let shares = [(0.0, "0"), (0.25, "25"), (0.5, "50"), (0.75, "75"), (0.9, "90"), (0.99, "")];
    let lines = distributions.iter().zip(&curves).map(|(distribution, curve)| {
        let start = curve.first().map_or(low, |(ms, _)| ms / 1.5);
        let points = [(x(start), y(0.0))].into_iter();
        json!({
            "variant": distribution.variant,
            "name": distribution.name,
            "colour": distribution.stroke.colour,
            "dashes": distribution.stroke.dashes,
            "path": path(points.chain(curve.iter().map(|(ms, share)| (x(*ms), y(*share))))),
        })
    });
    let contents = json!({
        "size": size,
        "right": right,
        "ticks_y": shares.map(|(share, text)| json!({ "at": y(share), "text": text })),
        "ticks_x": ticks(low, high)
            .into_iter()
            .map(|ms| json!({ "at": x(ms), "text": ms.to_string() }))
            .collect::<Vec<_>>(),
        "lines": lines.collect::<Vec<_>>(),
    });
    fill(include_str!("page/latency.svg"), &contents)
}

/// 1, 2 and 5 of each power of ten between two bounds; of many only the powers.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let factors: &[f64] = if decades > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let from = low.log10().floor() as i32;
    (from..from + decades.ceil() as i32 + 2)
        .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)))
        .map(|ms| (ms * 1e6).round() / 1e6)
        .filter(|ms| *ms >= low && *ms <= high)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::drawing::{NARROW, WIDE};
    use super::*;
    use ebb_trial::example;
    use ebb_trial::results::LoadResult;

    fn trial() -> Trial {
        let mut trial = example::trial();
        for (index, variant) in trial.variants.iter_mut().enumerate() {
            for run in &mut variant.runs {
                run.phases[1].load = Some(LoadResult {
                    requests: 100,
                    seconds: 2.0,
                    histogram_ms: Some(vec![(8.0, 50), (16.0, 49), (1024.0, 1 + index as u64)]),
                    ..LoadResult::default()
                });
            }
        }
        trial
    }

    #[test]
    fn runs_are_added_up_and_quantiles_read_off() {
        let distributions = of(&trial());
        assert_eq!(distributions.len(), 2, "complete runs only");
        assert_eq!(distributions[0].cells[0], (8.0, 150));
        assert_eq!(distributions[0].quantile(0.5), Some(8.0));
        assert_eq!(distributions[0].quantile(1.0), Some(1024.0));
    }

    #[test]
    fn a_load_without_a_histogram_leaves_its_variant_out() {
        let mut trial = trial();
        if let Some(load) = &mut trial.variants[0].runs[1].phases[1].load {
            load.histogram_ms = None;
        }
        let names: Vec<String> = of(&trial).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["ebbmalloc"]);
        assert!(of(&example::trial()).is_empty());
        assert_eq!(draw(&[], WIDE).unwrap(), "");
    }

    #[test]
    fn the_drawing_has_a_line_a_variant_inside_of_it() {
        for size in [WIDE, NARROW] {
            let svg = draw(&of(&trial()), size).unwrap();
            assert_eq!(svg.matches("class=\"line\"").count(), 2);
            assert!(svg.contains(">10</text>") && svg.contains("milliseconds"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        assert_eq!(ticks(5.0, 120.0), [5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(ticks(0.4, 1000.0), [1.0, 10.0, 100.0, 1000.0]);
    }
}
