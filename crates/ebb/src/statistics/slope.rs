//! Robust slopes: of the floors of a series, by Theil and Sen, with Sen's interval.
//!
//! A service's memory goes up and down with its load; what stays is the floor of each cycle. The time
//! is cut into equal windows, each gives its lowest value, and the slope is the median of the slopes
//! between all pairs of them: one burst or one collection of garbage more does not move it.

use crate::facts::growth::Slope;

/// Windows that the time is cut into.
pub const WINDOWS: usize = 12;
/// Fewer floors give no interval worth the name.
pub const LEAST_FLOORS: usize = 6;
/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.959_964;

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

/// The slope through points of different times; `None` of too few.
pub fn slope(points: &[(f64, f64)]) -> Option<Slope> {
    let n = points.len();
    if n < LEAST_FLOORS {
        return None;
    }
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    for (index, left) in points.iter().enumerate() {
        for right in &points[index + 1..] {
            let time = right.0 - left.0;
            if time > 0.0 {
                slopes.push((right.1 - left.1) / time);
            }
        }
    }
    if slopes.is_empty() {
        return None;
    }
    slopes.sort_by(f64::total_cmp);
    // Sen (1968): the ranks between which the median lies, from the variance of Kendall's statistic.
    let (n, pairs) = (n as f64, slopes.len() as f64);
    let spread = Z * (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let at = |rank: f64| slopes[(rank.max(0.0) as usize).min(slopes.len() - 1)];
    let middle = slopes.len() / 2;
    Some(Slope {
        bytes_per_s: match slopes.len() % 2 {
            1 => slopes[middle],
            _ => f64::midpoint(slopes[middle - 1], slopes[middle]),
        },
        low: at(((pairs - spread) / 2.0).floor()),
        high: at(((pairs + spread) / 2.0).ceil()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: usize, value: impl Fn(usize) -> f64) -> Vec<(f64, f64)> {
        (0..points).map(|at| (at as f64, value(at))).collect()
    }

    #[test]
    fn a_straight_line_has_its_slope_and_a_narrow_interval() {
        let slope = slope(&line(12, |at| 5.0 * at as f64)).unwrap();
        assert_eq!((slope.low, slope.bytes_per_s, slope.high), (5.0, 5.0, 5.0));
    }

    #[test]
    fn one_burst_does_not_move_it() {
        let slope = slope(&line(12, |at| if at == 7 { 1e9 } else { 100.0 })).unwrap();
        assert_eq!(slope.bytes_per_s, 0.0);
        assert!(slope.low <= 0.0 && slope.high >= 0.0);
    }

    #[test]
    fn noise_without_a_trend_includes_zero_about_as_often_as_promised() {
        let mut random = fastrand::Rng::with_seed(3);
        let wrong = (0..1000)
            .filter(|_| {
                let noise = line(WINDOWS, |_| 0.0);
                let noise: Vec<_> = noise.iter().map(|(at, _)| (*at, random.f64())).collect();
                let slope = slope(&noise).unwrap();
                slope.low > 0.0 || slope.high < 0.0
            })
            .count();
        assert!((10..90).contains(&wrong), "{wrong} of 1000, 50 expected");
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
    fn too_few_floors_give_no_slope() {
        assert_eq!(slope(&line(LEAST_FLOORS - 1, |at| at as f64)), None);
        assert_eq!(floors(&[]), []);
        assert_eq!(slope(&[(1.0, 1.0); 9]), None, "no time between them");
    }
}
