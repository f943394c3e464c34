//! Robust slopes: of the floors of a series, by Theil and Sen, with Sen's interval, made wider where floors that
//! follow each other are alike.
//!
//! A service's memory goes up and down with its load; what stays is the floor of each cycle. The time
//! is cut into equal windows, each gives its lowest value, and the slope is the median of the slopes
//! between all pairs of them: one burst or one collection of garbage more does not move it.
//!
//! A page that a few objects keep stays for several cycles, so floors are not independent. Of series of 80 that only
//! wander (half of each deviation stays to the next) 22 % had a trend as if they were, and 11 % have one with
//! `dependence`; of independent ones 4 %.

use serde::{Deserialize, Serialize};

/// Windows that the time is cut into.
pub const WINDOWS: usize = 12;
/// Fewer floors give no interval worth the name.
pub const LEAST_FLOORS: usize = 6;
/// Fewer floors do not tell whether successive ones are alike, or whether they grow in steps.
const LEAST_DEPENDENT: usize = 20;
/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.959_964;

/// A slope in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slope {
    /// The median of the slopes between all pairs of floors.
    pub bytes_per_s: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The lowest value of each window, with its time; windows without a value give none.
pub fn floors(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    let span = (last.0 - first.0).max(f64::MIN_POSITIVE);
    let mut lowest: [Option<(f64, f64)>; WINDOWS] = [None; WINDOWS];
    for &(at, value) in points {
        let window = (((at - first.0) / span * WINDOWS as f64) as usize).min(WINDOWS - 1);
        if lowest[window].is_none_or(|(_, least)| value < least) {
            lowest[window] = Some((at, value));
        }
    }
    lowest.into_iter().flatten().collect()
}

/// Floors of windows twice as long, for courses with cycles that are longer than a window.
pub fn coarser(floors: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let lower = |pair: &[(f64, f64)]| {
        let least = pair.iter().min_by(|left, right| left.1.total_cmp(&right.1));
        least.copied()
    };
    floors.chunks(2).filter_map(lower).collect()
}

/// How a course that rose ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It rises in its last third as well.
    GoesOn,
    /// It is flat in its last third.
    Flat,
    /// It rises more slowly, or moves too much to tell.
    Unclear,
}

/// How points end that rose by `per_s` over all.
pub fn end(points: &[(f64, f64)], per_s: f64) -> End {
    /// A rate below this part of the whole one's has stopped, if it may be 0.
    const STOPPED: f64 = 0.25;
    /// And below this in any case.
    const NOTHING: f64 = 0.05;
    /// With this part it goes on, by floors alone.
    const GOES_ON: f64 = 0.5;
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return End::Unclear;
    };
    let from = first.0 + (last.0 - first.0) * 2.0 / 3.0;
    let third = points.partition_point(|(at, _)| *at < from);
    if let Some(third) = slope(&floors(&points[third..])) {
        if third.high < NOTHING * per_s || (third.low <= 0.0 && third.high < STOPPED * per_s) {
            return End::Flat;
        }
        if third.low > 0.0 && third.bytes_per_s >= STOPPED * per_s {
            return End::GoesOn;
        }
    }
    // Cycles that are longer than a part of a third: by the floors of the whole.
    let floors = floors(points);
    let third = floors.partition_point(|(at, _)| *at < from);
    match crate::median(&slopes(&floors[third..])) {
        Some(third) if third >= GOES_ON * per_s => End::GoesOn,
        Some(third) if third <= NOTHING * per_s => End::Flat,
        _ => End::Unclear,
    }
}

pub(crate) fn slopes(points: &[(f64, f64)]) -> Vec<f64> {
    let pairs = points
        .iter()
        .enumerate()
        .flat_map(|(index, left)| points[index + 1..].iter().map(move |right| (right.0 - left.0, right.1 - left.1)));
    let mut slopes: Vec<f64> = pairs.filter(|(time, _)| *time > 0.0).map(|(time, rise)| rise / time).collect();
    slopes.sort_by(f64::total_cmp);
    slopes
}

/// The slope through points of different times; `None` of too few.
pub fn slope(points: &[(f64, f64)]) -> Option<Slope> {
    let n = points.len();
    if n < LEAST_FLOORS {
        return None;
    }
    let slopes = slopes(points);
    let bytes_per_s = crate::median_sorted(&slopes)?;
    // Sen (1968): the ranks between which the median lies, from the variance of Kendall's statistic.
    let (n, pairs) = (n as f64, slopes.len() as f64);
    let variance = n * (n - 1.0) * (2.0 * n + 5.0) / 18.0 * dependence(points, bytes_per_s);
    let spread = Z * variance.sqrt();
    let at = |rank: f64| slopes[(rank.max(0.0) as usize).min(slopes.len() - 1)];
    Some(Slope { bytes_per_s, low: at(((pairs - spread) / 2.0).floor()), high: at(((pairs + spread) / 2.0).ceil()) })
}

/// By how much the variance of Kendall's statistic grows where the residuals of the points without their trend go
/// together from one to the next; 1 where it does not. Hamed and Rao (1998), from the correlations of ranks, of
/// the lags up to the first that is not significant.
fn dependence(points: &[(f64, f64)], trend: f64) -> f64 {
    if points.len() < LEAST_DEPENDENT {
        return 1.0;
    }
    let rest: Vec<f64> = points.iter().map(|(at, value)| value - trend * at).collect();
    let ranks = ranks(&rest);
    let count = ranks.len() as f64;
    let mean = (count - 1.0) / 2.0;
    let product = |lag: usize| -> f64 {
        let pairs = ranks.iter().zip(&ranks[lag..]);
        pairs.map(|(left, right)| (left - mean) * (right - mean)).sum()
    };
    let all = product(0);
    if all == 0.0 {
        return 1.0;
    }
    let significant = Z / count.sqrt();
    let sum: f64 = (1..ranks.len())
        .map(|lag| (lag as f64, product(lag) / all))
        .take_while(|(_, correlation)| *correlation > significant)
        .map(|(lag, correlation)| (count - lag) * (count - lag - 1.0) * (count - lag - 2.0) * correlation)
        .sum();
    1.0 + 2.0 * sum / (count * (count - 1.0) * (count - 2.0))
}

/// The rank of each value, from 0; equal ones share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&left, &right| values[left].total_cmp(&values[right]));
    let mut ranks = vec![0.0; values.len()];
    let mut next = 0;
    for same in order.chunk_by(|&left, &right| values[left] == values[right]) {
        let rank = next as f64 + (same.len() - 1) as f64 / 2.0;
        same.iter().for_each(|&index| ranks[index] = rank);
        next += same.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: usize, value: impl Fn(usize) -> f64) -> Vec<(f64, f64)> {
        (0..points).map(|at| (at as f64, value(at))).collect()
    }

    #[test]
    fn bursts_do_not_move_a_slope_and_steps_are_a_trend() {
        let of = |points: &[(f64, f64)]| slope(points).unwrap();
        let straight = of(&line(12, |at| 5.0 * at as f64));
        assert_eq!((straight.low, straight.bytes_per_s, straight.high), (5.0, 5.0, 5.0));
        let burst = of(&line(12, |at| if at == 7 { 1e9 } else { 100.0 }));
        assert!(burst.bytes_per_s == 0.0 && burst.low <= 0.0 && burst.high >= 0.0, "{burst:?}");
        let steps = of(&line(24, |at| (at / 4) as f64));
        assert!(steps.low > 0.0, "{steps:?}");
        // Coarser floors span a cycle.
        let saw = of(&coarser(&line(12, |at| (at % 2) as f64 * 50.0)));
        assert_eq!((saw.low, saw.high), (0.0, 0.0));
    }

    /// The number of series, of so many floors each, with a trend though they only wander: this part of each deviation
    /// stays to the next.
    fn wrong(seed: u64, series: u32, floors: usize, keeps: f64) -> usize {
        let mut random = fastrand::Rng::with_seed(seed);
        let trend = |_: &u32| {
            let mut last = 0.0;
            let mut next = || {
                last = keeps * last + random.f64() - 0.5;
                last
            };
            let wandering: Vec<_> = (0..floors).map(|at| (at as f64, next())).collect();
            let slope = slope(&wandering).unwrap();
            slope.low > 0.0 || slope.high < 0.0
        };
        (0..series).filter(trend).count()
    }

    #[test]
    fn floors_without_a_trend_seem_to_have_one_about_as_often_as_promised() {
        // 50 of 1000 and 25 of 500 are promised; as if all were independent the last would be 110.
        for (seed, series, floors, keeps, expected) in
            [(3, 1000, WINDOWS, 0.0, 10..90), (4, 500, 80, 0.0, 10..45), (5, 500, 80, 0.5, 10..60)]
        {
            let wrong = wrong(seed, series, floors, keeps);
            assert!(expected.contains(&wrong), "{wrong} of {series} ({keeps} stays)");
        }
    }

    #[test]
    fn equal_values_share_a_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [2.5, 0.0, 2.5, 1.0]);
        assert_eq!(dependence(&line(30, |_| 1.0), 0.0), 1.0);
    }

    #[test]
    fn floors_follow_the_bottoms_of_cycles() {
        // A cycle of 10 looks up to 100, on a floor that grows by 1 a look.
        let points = line(240, |at| at as f64 + (at % 10) as f64 * 10.0);
        let floors = floors(&points);
        assert_eq!(floors.len(), WINDOWS);
        let slope = slope(&floors).unwrap();
        assert!((0.99..1.01).contains(&slope.bytes_per_s), "{slope:?}");
    }

    #[test]
    fn the_last_third_tells_whether_a_rise_goes_on() {
        let of = |value: &dyn Fn(f64) -> f64| {
            let points = line(120, |at| value(at as f64));
            let whole = slope(&floors(&points)).unwrap();
            end(&points, whole.bytes_per_s)
        };
        assert_eq!(of(&|at| at), End::GoesOn);
        assert_eq!(of(&|at| at.min(57.0)), End::Flat);
        assert_eq!(of(&|at| at.min(80.0)), End::Flat);
        assert_ne!(of(&|at| at.min(100.0)), End::Flat);
        // On cycles of 10 with an amplitude of 30.
        assert_eq!(of(&|at| at + (at % 10.0) * 3.0), End::GoesOn);
        assert_eq!(of(&|at| at.min(60.0) + (at % 10.0) * 3.0), End::Flat);
        assert_eq!(end(&[], 1.0), End::Unclear);
    }

    #[test]
    fn too_few_floors_give_no_slope() {
        assert_eq!(slope(&line(LEAST_FLOORS - 1, |at| at as f64)), None);
        assert_eq!(floors(&[]), []);
        assert_eq!(slope(&[(1.0, 1.0); 9]), None, "no time between them");
    }
}
