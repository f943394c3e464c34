//! Medians, quantiles, bootstrap intervals of differences, robust slopes ([`slope`]), steps ([`steps`]) and two
//! periods with daily waves ([`periods`]). Pure.
//!
//! For trials, diagnoses over time and reports. It knows numbers only, and it is repeatable: the bootstrap's generator has
//! a fixed seed, so the same runs give the same report.
//!
//! ```
//! let (old, new) = ([400.0, 404.0, 398.0], [80.0, 84.0, 82.0]);
//! let (low, high) = ebb_statistics::difference_interval(&new, &old).unwrap();
//! assert!(low < -318.0 && high > -318.0, "the difference of the medians is inside");
//! ```

pub mod periods;
pub mod slope;
pub mod steps;

use serde::{Deserialize, Serialize};

/// Resamples of a bootstrap. The ends of a 95 % interval then stand on 50 resamples each.
const RESAMPLES: usize = 2000;
const SEED: u64 = 0x0ebb;

/// The median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_sorted(&sorted)
}

/// The same of values in their order.
fn median_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The median where each value counts as often as its weight says; `None` without weight.
pub fn weighted_median(pairs: &[(f64, u64)]) -> Option<f64> {
    let mut sorted = pairs.to_vec();
    sorted.sort_by(|left, right| left.0.total_cmp(&right.0));
    let total: u64 = sorted.iter().map(|(_, weight)| weight).sum();
    let mut below = 0;
    sorted.iter().find_map(|(value, weight)| {
        below += weight;
        (total > 0 && below * 2 >= total).then_some(*value)
    })
}

/// A quantile of counts in cells with upper bounds, straight within a cell; the lower end of the first
/// cell is 0. `None` without counts.
pub fn histogram_quantile(cells: &[(f64, u64)], quantile: f64) -> Option<f64> {
    let mut sorted = cells.to_vec();
    sorted.sort_by(|left, right| left.0.total_cmp(&right.0));
    let total: u64 = sorted.iter().map(|(_, count)| count).sum();
    if total == 0 {
        return None;
    }
    let rank = quantile * total as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (upper, count) in sorted {
        let count = count as f64;
        if count > 0.0 && below + count >= rank {
            return Some(lower + (upper - lower) * ((rank - below) / count).clamp(0.0, 1.0));
        }
        below += count;
        lower = upper;
    }
    Some(lower)
}

/// 95 % percentile-bootstrap interval of `median(of) - median(against)`, both sides resampled
/// independently. `None` with fewer than two values on a side: one run gives a direction, no interval.
pub fn difference_interval(of: &[f64], against: &[f64]) -> Option<(f64, f64)> {
    if of.len() < 2 || against.len() < 2 {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let differences = (0..RESAMPLES).map(|_| {
        let of = resampled_median(of, &mut random);
        of - resampled_median(against, &mut random)
    });
    Some(middle_95(differences.collect()))
}

/// 95 % percentile-bootstrap interval of the median of differences that were taken in pairs, each of two
/// things at the same time. `None` of fewer than two.
pub fn paired_interval(differences: &[f64]) -> Option<(f64, f64)> {
    if differences.len() < 2 {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let medians = (0..RESAMPLES).map(|_| resampled_median(differences, &mut random));
    Some(middle_95(medians.collect()))
}

/// 95 % percentile-bootstrap interval of the mean. `None` of fewer than two.
pub fn mean_interval(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut drawn = || -> f64 { values.iter().map(|_| values[random.usize(..values.len())]).sum() };
    Some(middle_95((0..RESAMPLES).map(|_| drawn() / values.len() as f64).collect()))
}

/// The median of as many values, drawn from these.
fn resampled_median(values: &[f64], random: &mut fastrand::Rng) -> f64 {
    let mut drawn: Vec<f64> = (0..values.len()).map(|_| values[random.usize(..values.len())]).collect();
    drawn.sort_by(f64::total_cmp);
    median_sorted(&drawn).unwrap_or(0.0)
}

/// The ends of the middle 95 % of resamples.
fn middle_95(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    (at(0.025), at(0.975))
}

/// Cells of several histograms as those of one: counts of the same upper bound are added.
pub fn merge_cells<'a>(cells: impl Iterator<Item = &'a (f64, u64)>) -> Vec<(f64, u64)> {
    let mut sorted: Vec<(f64, u64)> = cells.copied().collect();
    sorted.sort_by(|left, right| left.0.total_cmp(&right.0));
    sorted.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    sorted
}

/// How a difference is to be read, by its interval. For trials and for `ebb diff`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// Its interval does not include 0, and it reaches beyond what is too small to matter.
    Real,
    /// Its whole interval is too small to matter.
    NoRealDifference,
    /// Its interval includes 0 and reaches beyond that: more runs are needed to tell.
    Unclear,
}

impl Reading {
    /// Of an interval, where differences up to `small` do not matter.
    pub fn of((low, high): (f64, f64), small: f64) -> Self {
        if low >= -small && high <= small {
            Reading::NoRealDifference
        } else if low <= 0.0 && high >= 0.0 {
            Reading::Unclear
        } else {
            Reading::Real
        }
    }

    /// In words, where the figure alone would be read as a difference.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Reading::Real => None,
            Reading::NoRealDifference => Some("no real difference"),
            Reading::Unclear => Some("unclear"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles_follow_count_and_weight() {
        for (values, expected) in [(&[3.0, 1.0, 2.0][..], Some(2.0)), (&[4.0, 1.0, 2.0, 3.0], Some(2.5)), (&[], None)] {
            assert_eq!(median(values), expected, "{values:?}");
        }
        for (pairs, expected) in
            [(&[(1.0, 1), (10.0, 100)][..], Some(10.0)), (&[(10.0, 1), (1.0, 3)], Some(1.0)), (&[(1.0, 0)], None)]
        {
            assert_eq!(weighted_median(pairs), expected, "{pairs:?}");
        }
        let cells = [(10.0, 50), (20.0, 50), (40.0, 0)];
        for (quantile, expected) in [(0.5, 10.0), (0.75, 15.0), (1.0, 20.0)] {
            assert_eq!(histogram_quantile(&cells, quantile), Some(expected));
        }
        assert_eq!(histogram_quantile(&[(5.0, 0)], 0.5), None);
    }

    #[test]
    fn the_interval_holds_the_difference_and_is_repeatable() {
        let low = [80.0, 84.0, 82.0, 83.0, 81.0];
        let high = [400.0, 404.0, 398.0, 410.0, 402.0];
        let (from, to) = difference_interval(&low, &high).unwrap();
        assert!(from <= -320.0 && -320.0 <= to, "{from} .. {to}");
        assert!(from >= -330.0 && to <= -314.0, "as wide as the data allow: {from} .. {to}");
        assert_eq!(difference_interval(&low, &high), Some((from, to)));
    }

    #[test]
    fn the_interval_of_equal_noise_includes_zero() {
        let left = [10.0, 12.0, 11.0, 13.0, 9.0];
        let right = [11.0, 10.0, 12.0, 9.0, 13.0];
        let (from, to) = difference_interval(&left, &right).unwrap();
        assert!(from < 0.0 && to > 0.0, "{from} .. {to}");
        assert_eq!(difference_interval(&[1.0], &right), None, "one run");
    }

    #[test]
    fn pairs_see_a_difference_that_their_common_ups_and_downs_hide() {
        let old: Vec<f64> = (0..12).map(|at| 100.0 + 50.0 * f64::from(at % 4)).collect();
        let new: Vec<f64> = old.iter().map(|value| value - 5.0).collect();
        let apart = difference_interval(&new, &old).unwrap();
        assert!(apart.0 < 0.0 && apart.1 > 0.0, "{apart:?}");
        let pairs: Vec<f64> = new.iter().zip(&old).map(|(new, old)| new - old).collect();
        assert_eq!(paired_interval(&pairs), Some((-5.0, -5.0)));
        assert_eq!(paired_interval(&[1.0]), None);
    }

    /// How often the interval holds the true difference, over many small trials drawn from a known
    /// distribution: with five runs a percentile bootstrap is a little short of 95 %.
    #[test]
    fn coverage_with_five_runs_is_near_its_promise() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut draw = |mean: f64| -> Vec<f64> {
            (0..5).map(|_| mean + (0..12).map(|_| random.f64()).sum::<f64>() - 6.0).collect()
        };
        let held = (0..200)
            .filter(|_| {
                let (from, to) = difference_interval(&draw(10.0), &draw(13.0)).unwrap();
                from <= -3.0 && -3.0 <= to
            })
            .count();
        assert!((170..=200).contains(&held), "{held} of 200");
    }
}
