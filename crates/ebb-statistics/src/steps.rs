//! Steps in the floor of a series: when it rose or fell, and by how much.
//!
//! A service's memory goes up and down with its load, so the floor is what stays after each excursion upwards. A
//! morphological opening (a running minimum, then a running maximum, of the same width) removes excursions that are
//! shorter than its width and leaves the place of a step as it is. The place is found in the opened series by binary
//! segmentation with the CUSUM statistic (Scott and Knott, 1974). The size and its interval come from the minima of blocks,
//! by their medians.
//!
//! A slope also differs from one half to the other. So a step counts only where two levels fit the blocks around it
//! better than a straight line does.

use super::median;

mod monitor;

pub use monitor::Monitor;

/// Fewer points have no steps.
pub const LEAST_POINTS: usize = 240;
/// An excursion of fewer points than this is no part of the floor,
const LEAST_WIDTH: usize = 20;
/// nor one that is shorter than this part of the series.
const WIDTHS: usize = 48;
/// A step differs from 0 by so many standard errors: many places were tried.
const CERTAIN: f64 = 5.0;
/// The deviations from a line are larger than those from two levels by this factor.
const BETTER_THAN_A_LINE: f64 = 1.5;
/// A step is at least this part as large between blocks twice as long.
const SAME_TWICE: f64 = 0.7;
/// Their evidence is weaker, since there are fewer.
const TWICE: f64 = 1.4;
/// A value this much further above the floor than the usual one is part of a burst.
const USUAL_HEIGHT: f64 = 3.0;
/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.959_964;

/// A change of the floor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The time of the first point on the new floor.
    pub at: f64,
    /// The new floor less the old one.
    pub change: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The steps of at least `least` in points of rising time, by time. None of fewer than [`LEAST_POINTS`].
pub fn steps(points: &[(f64, f64)], least: f64) -> Vec<Step> {
    if points.len() < LEAST_POINTS {
        return Vec::new();
    }
    let floor = Floor::new(points.iter().map(|point| point.1).collect());
    let mut places = Vec::new();
    floor.cut(0, points.len(), &mut places);
    places.sort_unstable();
    // Each place is judged by the points up to its neighbours, so the least likely one goes alone.
    loop {
        let ends = [&[0], &places[..], &[points.len()]].concat();
        let by = |width: usize| -> Vec<Levels> {
            ends.windows(3).map(|at| floor.levels(at[0], at[1], at[2], width)).collect()
        };
        // Cycles about as long as a block beat with it. Blocks twice as long hold their bottoms, and must agree.
        let (judged, twice) = (by(floor.width), by(2 * floor.width));
        let evidence = judged.iter().zip(&twice).map(|(it, twice)| {
            let same = twice.change / it.change >= SAME_TWICE;
            if same { it.evidence(least).min(twice.evidence(0.0) * TWICE) } else { 0.0 }
        });
        let weakest = evidence.enumerate().min_by(|left, right| left.1.total_cmp(&right.1));
        match weakest {
            Some((index, evidence)) if evidence < 1.0 => {
                places.remove(index);
            }
            _ => {
                let found = ends.windows(3).zip(judged);
                let at = |ends: &[usize], levels: &Levels| floor.date(ends[1], ends[2], levels);
                return found.map(|(ends, levels)| levels.step(points[at(ends, &levels)].0)).collect();
            }
        }
    }
}

/// A series, and the same without excursions.
struct Floor {
    values: Vec<f64>,
    opened: Vec<f64>,
    width: usize,
}

impl Floor {
    fn new(values: Vec<f64>) -> Self {
        let width = LEAST_WIDTH.max(values.len() / WIDTHS);
        Self { opened: opened(&values, width), values, width }
    }

    /// Adds every place in `from..to` that may be a step: the likeliest one, then those on both sides of it.
    fn cut(&self, from: usize, to: usize, places: &mut Vec<usize>) {
        let Some(place) = self.most_different(from, to) else {
            return;
        };
        places.push(place);
        self.cut(from, place, places);
        self.cut(place, to, places);
    }

    /// Where the means of both sides differ most, for their lengths.
    fn most_different(&self, from: usize, to: usize) -> Option<usize> {
        let all = &self.opened[from..to];
        let (count, total) = (all.len() as f64, all.iter().sum::<f64>());
        let mut sum = 0.0;
        let mut best = None;
        for (index, value) in all.iter().enumerate() {
            if index >= 2 * self.width && index + 2 * self.width <= all.len() {
                let before = index as f64;
                let (left, right) = (sum / before, (total - sum) / (count - before));
                let cusum = (left - right).abs() * (before * (count - before) / count).sqrt();
                if cusum > best.map_or(0.0, |(most, _)| most) {
                    best = Some((cusum, from + index));
                }
            }
            sum += value;
        }
        best.map(|(_, place)| place)
    }

    /// When the floor of `levels` changed. A rise during a burst shows at its end, and a burst that ends on a higher floor seems
    /// to begin with it: its middle is off by half of it at most.
    fn date(&self, place: usize, to: usize, levels: &Levels) -> usize {
        let above: Vec<f64> = self.values[place..to].iter().map(|it| it - levels.high).collect();
        let usual = median(&above).unwrap_or_default() * USUAL_HEIGHT;
        let burst = above.iter().take(self.width).take_while(|it| **it > usual).count();
        if burst < self.width { place + burst / 2 } else { place }
    }

    /// The floors before and after `place` by blocks of `width`.
    fn levels(&self, from: usize, place: usize, to: usize, width: usize) -> Levels {
        let minimum = |block: &[f64]| block.iter().copied().fold(f64::INFINITY, f64::min);
        let before = self.values[from..place].rchunks_exact(width).rev().map(minimum);
        let after = self.values[place..to].chunks_exact(width).map(minimum);
        Levels::new(before.collect(), after.collect())
    }
}

/// Two floors, one after the other.
struct Levels {
    change: f64,
    /// The second floor.
    high: f64,
    error: f64,
    /// The sum of the blocks' deviations from their floor.
    deviation: f64,
    blocks: Vec<f64>,
}

impl Levels {
    /// From the lowest values of blocks before and after; there is one of each at least.
    fn new(before: Vec<f64>, after: Vec<f64>) -> Self {
        let middle = |values: &[f64]| median(values).unwrap_or_default();
        let (low, high) = (middle(&before), middle(&after));
        let rest: Vec<f64> = before.iter().map(|it| it - low).chain(after.iter().map(|it| it - high)).collect();
        let deviations: Vec<f64> = rest.iter().map(|it| it.abs()).collect();
        let lengths = 1.0 / before.len() as f64 + 1.0 / after.len() as f64;
        Self {
            change: high - low,
            high,
            // The deviation of a median of normal values, from that of the values, by their absolute deviations.
            error: 1.4826 * 1.2533 * middle(&deviations) * (lengths * dependence(&rest)).sqrt(),
            deviation: deviations.iter().sum(),
            blocks: before.into_iter().chain(after).collect(),
        }
    }

    fn step(&self, at: f64) -> Step {
        let spread = Z * self.error;
        Step { at, change: self.change, low: self.change - spread, high: self.change + spread }
    }

    /// How well the blocks show a step of at least `least`; from 1 on they do.
    fn evidence(&self, least: f64) -> f64 {
        if self.change.abs() < least.max(f64::MIN_POSITIVE) {
            return 0.0;
        }
        let certain = self.change.abs() / (CERTAIN * self.error);
        certain.min(self.better_than_a_line() / BETTER_THAN_A_LINE)
    }

    /// The deviations from the best line over those from two levels.
    fn better_than_a_line(&self) -> f64 {
        let line: Vec<(f64, f64)> = self.blocks.iter().enumerate().map(|(at, value)| (at as f64, *value)).collect();
        let slope = median(&super::slope::slopes(&line)).unwrap_or_default();
        let rest: Vec<f64> = line.iter().map(|(at, value)| value - slope * at).collect();
        let start = median(&rest).unwrap_or_default();
        let deviation: f64 = rest.iter().map(|it| (it - start).abs()).sum();
        if self.deviation > 0.0 { deviation / self.deviation } else { f64::INFINITY }
    }
}

/// Without what lasts for less than `width` values.
fn opened(values: &[f64], width: usize) -> Vec<f64> {
    let eroded: Vec<f64> =
        values.windows(width).map(|window| window.iter().copied().fold(f64::INFINITY, f64::min)).collect();
    let around = |at: usize| &eroded[at.saturating_sub(width - 1)..(at + 1).min(eroded.len())];
    (0..values.len()).map(|at| around(at).iter().copied().fold(f64::NEG_INFINITY, f64::max)).collect()
}

/// By how much the variance of a mean grows because each value resembles the one before it.
fn dependence(rest: &[f64]) -> f64 {
    let squares: f64 = rest.iter().map(|it| it * it).sum();
    if squares == 0.0 {
        return 1.0;
    }
    let products: f64 = rest.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let correlation = (products / squares).clamp(0.0, 0.9);
    (1.0 + correlation) / (1.0 - correlation)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1e6;
    /// Seconds between two points.
    const EACH: f64 = 15.0;

    /// A floor of 200 MB that wanders by a third of a MB, with bursts of 20 to 150 MB for up to 4 minutes.
    fn service(random: &mut fastrand::Rng, points: usize) -> Vec<(f64, f64)> {
        let mut wander = 0.0;
        let mut burst = (0, 0.0);
        let next = |index: usize| {
            // The sum of 12 is close to normal, with variance 1.
            let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            wander = 0.7 * wander + 0.25 * normal;
            if burst.0 == 0 && random.u32(..80) == 0 {
                burst = (random.u32(2..17), 20.0 + 130.0 * random.f64());
            }
            let height = if burst.0 > 0 { burst.1 * (0.6 + 0.4 * random.f64()) } else { 0.0 };
            burst.0 = burst.0.saturating_sub(1);
            (index as f64 * EACH, (200.0 + wander + 0.3 * random.f64() + height) * MB)
        };
        (0..points).map(next).collect()
    }

    fn found(points: &[(f64, f64)]) -> Vec<Step> {
        steps(points, 0.5 * MB)
    }

    /// Of 100 series with one step of 1 to 50 MB each: in how many it is found within two minutes, and what else is found.
    fn planted(seed: u64, points: usize) -> (usize, usize) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut hits, mut others) = (0, 0);
        for _ in 0..100 {
            let mut series = service(&mut random, points);
            let size = 50_f64.powf(random.f64()) * MB;
            let place = random.usize(points / 8..points * 7 / 8);
            series[place..].iter_mut().for_each(|point| point.1 += size);
            let is_near = |step: &Step| (step.at - place as f64 * EACH).abs() <= 120.0;
            let (near, far): (Vec<Step>, Vec<Step>) = found(&series).into_iter().partition(is_near);
            hits += usize::from(!near.is_empty());
            others += far.len() + near.len().saturating_sub(1);
        }
        (hits, others)
    }

    #[test]
    fn planted_steps_are_found_at_their_time() {
        for (seed, points) in [(1, 720), (2, 1440), (3, 2880)] {
            let (hits, others) = planted(seed, points);
            println!("{points} points: {hits} found, {others} others");
            assert!(hits >= 95 && others <= 5, "{points} points: {hits} found, {others} others");
        }
    }

    fn monitored(series: &[(f64, f64)]) -> Vec<Step> {
        let mut monitor = Monitor::new(0.5 * MB);
        series.iter().flat_map(|&(at, value)| monitor.add(at, value)).collect()
    }

    #[test]
    fn a_monitor_tells_planted_steps_once_and_nothing_of_a_level_series() {
        let mut random = fastrand::Rng::with_seed(21);
        let (mut hits, mut others, mut wrong) = (0, 0, 0);
        for _ in 0..100 {
            let mut series = service(&mut random, 1440);
            wrong += usize::from(!monitored(&series).is_empty());
            let size = 50_f64.powf(random.f64()) * MB;
            let place = random.usize(LEAST_POINTS / 2..4 * LEAST_POINTS);
            series[place..].iter_mut().for_each(|point| point.1 += size);
            let is_near = |step: &Step| (step.at - place as f64 * EACH).abs() <= 120.0;
            let (near, far): (Vec<Step>, Vec<Step>) = monitored(&series).into_iter().partition(is_near);
            hits += usize::from(!near.is_empty());
            others += far.len() + near.len().saturating_sub(1);
        }
        println!("monitor: {hits} found, {others} others, {wrong} of 100 wrong");
        assert!(hits >= 95 && others <= 5 && wrong == 0, "{hits} found, {others} others, {wrong} wrong");
    }

    #[test]
    fn a_series_without_steps_has_none() {
        // Parts of a size, by the point and a period.
        type Shape = fn(f64, f64) -> f64;
        let shapes: [(&str, Shape); 5] = [
            ("level", |_, _| 0.0),
            ("leak", |at, _| at / 1440.0),
            ("filling", |at, period| -(-at / period).exp()),
            ("waves", |at, period| (at / period).sin()),
            ("sawtooth", |at, period| at % period.round() / period),
        ];
        for (name, shape) in shapes {
            let mut random = fastrand::Rng::with_seed(7);
            let wrong = (0..100).filter(|_| {
                let mut series = service(&mut random, 1440);
                let (size, period) = ((5.0 + 45.0 * random.f64()) * MB, 10.0 + 190.0 * random.f64());
                for (at, point) in series.iter_mut().enumerate() {
                    point.1 += size * shape(at as f64, period);
                }
                !found(&series).is_empty()
            });
            let wrong = wrong.count();
            println!("{name}: {wrong} of 100");
            // A cache that fills within a few blocks looks like a step, and so do cycles about as long as a block.
            let most = if matches!(name, "level" | "leak") { 0 } else { 5 };
            assert!(wrong <= most, "{name}: {wrong} of 100 series without steps");
        }
    }

    #[test]
    fn the_interval_holds_the_size() {
        let mut random = fastrand::Rng::with_seed(11);
        let (mut inside, mut all) = (0, 0);
        for _ in 0..100 {
            let mut series = service(&mut random, 1440);
            series[700..].iter_mut().for_each(|point| point.1 -= 8.0 * MB);
            for step in found(&series) {
                all += 1;
                inside += u32::from(step.low <= -8.0 * MB && step.high >= -8.0 * MB);
            }
        }
        println!("{inside} of {all}");
        assert!(all >= 95 && inside * 10 >= all * 8, "{inside} of {all} intervals");
    }

    #[test]
    fn exact_series() {
        let line =
            |value: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> { (0..480).map(|at| (at as f64, value(at))).collect() };
        let of = |value: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
            found(&line(value)).iter().map(|step| (step.at, step.change)).collect()
        };
        assert_eq!(of(&|_| 5.0 * MB), []);
        assert_eq!(of(&|at| at as f64 * MB), [], "a slope");
        assert_eq!(of(&|at| if at < 200 { 0.0 } else { 3.0 * MB }), [(200.0, 3.0 * MB)]);
        assert_eq!(of(&|at| if at < 200 { 0.0 } else { 0.4 * MB }), [], "too small");
        assert_eq!(of(&|at| if (200..215).contains(&at) { 9.0 * MB } else { 0.0 }), [], "a burst");
        let stairs = of(&|at| (at / 120) as f64 * 2.0 * MB);
        assert_eq!(stairs, [(120.0, 2.0 * MB), (240.0, 2.0 * MB), (360.0, 2.0 * MB)]);
        assert_eq!(steps(&line(&|at| if at < 20 { 0.0 } else { MB })[..200], 0.0), [], "too few points");
        assert_eq!(steps(&[], 0.0), []);
    }
}
