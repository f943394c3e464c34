//! Two periods of one series, with daily waves and noise that lasts for hours: how far their levels are apart.
//!
//! The series comes in windows of equal length, each with one value. Windows of the same hour of the day are compared, so
//! that a wave which both periods have cancels out. Windows that follow each other are alike, so they are no independent
//! values. The interval comes from the medians of blocks of up to six windows: from Student's distribution, with the number of
//! blocks reduced by the correlation that is left between them, and by the waves that were taken off.
//!
//! For `ebb diff` on a folder of records. `crates/ebb-statistics/src/periods/tests.rs` says how often it is right.

use std::collections::BTreeMap;

use crate::slope::Slope;

/// Windows of a block: with one-hour windows a quarter of a day, longer than memory usually remembers a burst.
const BLOCK: usize = 6;
/// A period has at least this number of blocks, or they are shorter.
const LEAST_BLOCKS: usize = 3;
/// Fewer windows on a side give no interval.
pub const LEAST_WINDOWS: usize = 3;
/// A drift needs more.
const LEAST_WINDOWS_OF_DRIFT: usize = 6;
/// Hours of the day that both have are enough if they are this part of the shorter period's.
const LEAST_MATCHED: f64 = 0.5;
/// More correlation of blocks than this cannot be told from a step within a period.
const MOST_CORRELATION: f64 = 0.7;
/// Fewer degrees of freedom give intervals that say nothing.
const LEAST_FREE: f64 = 2.0;

/// The value of one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The number of the window since some beginning; with it go time and hour of the day.
    pub number: i64,
    /// Its value.
    pub value: f64,
}

/// By how much the second period differs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Level of the first.
    pub before: f64,
    /// Level of the second less level of the first.
    pub change: f64,
    /// Ends of the 99 % interval of `change`, since several figures of a series are tried; absent with fewer than
    /// [`LEAST_WINDOWS`] on a side.
    pub interval: Option<(f64, f64)>,
    /// Whether windows of the same hour of the day were compared.
    pub same_hours: bool,
}

/// Compares two periods, whose windows are in order. `per_day` windows make a day; without it hours are not
/// compared. `None` of an empty period.
pub fn change(before: &[Window], after: &[Window], per_day: Option<u32>) -> Option<Change> {
    if let Some(per_day) = per_day {
        let slot = |window: &Window| window.number.rem_euclid(i64::from(per_day));
        let common = |of: &[Window], with: &[Window]| -> Vec<Window> {
            let slots: std::collections::BTreeSet<i64> = with.iter().map(slot).collect();
            of.iter().copied().filter(|window| slots.contains(&slot(window))).collect()
        };
        let (of, with) = (common(before, after), common(after, before));
        let enough = |part: &[Window], all: &[Window]| {
            part.len() as f64 >= LEAST_MATCHED * before.len().min(after.len()).min(all.len()) as f64
        };
        if !of.is_empty() && enough(&of, before) && enough(&with, after) {
            return levels(&of, &with, slot).map(|it| Change { same_hours: true, ..it });
        }
    }
    levels(before, after, |_| 0)
}

/// From which window of `after` on its level is no longer on the far side of half the `change`; `None` where that holds to
/// the end. One window alone does not decide.
pub fn ends(before: &[Window], after: &[Window], per_day: Option<u32>, change: &Change) -> Option<i64> {
    let slot = |window: &Window| match per_day.filter(|_| change.same_hours) {
        Some(per_day) => window.number.rem_euclid(i64::from(per_day)),
        None => 0,
    };
    let mut wave: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for window in before {
        wave.entry(slot(window)).or_default().push(window.value);
    }
    let shares: Vec<(i64, f64)> = after
        .iter()
        .filter_map(|window| {
            let level = crate::median(wave.get(&slot(window))?)?;
            Some((window.number, (window.value - level) / change.change))
        })
        .collect();
    let has_ended = |around: &[(i64, f64)]| {
        let shares: Vec<f64> = around.iter().map(|it| it.1).collect();
        crate::median(&shares).is_some_and(|share| share < 0.5)
    };
    shares.windows(3).find(|around| has_ended(around)).map(|around| around[0].0)
}

/// How fast the values of one period rise from window to window, given the wave of the day; with `per_day` it needs two days,
/// because a part of a wave rises, too. By least squares, with a 95 % interval.
pub fn drift(windows: &[Window], per_day: Option<u32>) -> Option<Slope> {
    let per_day = per_day.map(i64::from);
    let span = windows.last()?.number - windows.first()?.number + 1;
    if windows.len() < LEAST_WINDOWS_OF_DRIFT || per_day.is_some_and(|per_day| span < 2 * per_day) {
        return None;
    }
    let slot = |window: &Window| per_day.map_or(0, |per_day| window.number.rem_euclid(per_day));
    let mut slots: BTreeMap<i64, Vec<Window>> = BTreeMap::new();
    for window in windows {
        slots.entry(slot(window)).or_default().push(*window);
    }
    let middles: BTreeMap<i64, (f64, f64)> = slots
        .iter()
        .map(|(slot, windows)| {
            let count = windows.len() as f64;
            let mean = |of: fn(&Window) -> f64| windows.iter().map(of).sum::<f64>() / count;
            (*slot, (mean(|it| it.number as f64), mean(|it| it.value)))
        })
        .collect();
    // Times and values without those of their hour.
    let rest: Vec<(f64, f64)> = windows
        .iter()
        .map(|window| {
            let (time, value) = middles[&slot(window)];
            (window.number as f64 - time, window.value - value)
        })
        .collect();
    let squares: f64 = rest.iter().map(|(time, _)| time * time).sum();
    let slope = rest.iter().map(|(time, value)| time * value).sum::<f64>() / squares;
    let (count, taken) = (windows.len() as f64, slots.len() as f64 + 1.0);
    let block = (windows.len() / LEAST_BLOCKS).clamp(1, BLOCK);
    let noise: Vec<f64> = rest.iter().map(|(time, value)| value - slope * time).collect();
    let noise = Noise::of(&[blocks(&noise, block).1], count, taken)?;
    let weights = rest.chunks(block).map(|block| block.iter().map(|(time, _)| time).sum::<f64>());
    let error = noise.variance * weights.map(|weight| weight * weight).sum::<f64>();
    let spread = OF_95.at(noise.free) * error.sqrt() / squares;
    Some(Slope { bytes_per_s: slope, low: slope - spread, high: slope + spread })
}

/// The difference of two levels, given that windows of one slot have the same wave.
fn levels(before: &[Window], after: &[Window], slot: impl Fn(&Window) -> i64) -> Option<Change> {
    if before.is_empty() || after.is_empty() {
        return None;
    }
    let mut slots: BTreeMap<i64, [Vec<f64>; 2]> = BTreeMap::new();
    for (side, windows) in [before, after].into_iter().enumerate() {
        for window in windows {
            slots.entry(slot(window)).or_default()[side].push(window.value);
        }
    }
    // Each slot counts by what it tells of the difference; an hour with a restart or a burst moves no median.
    let differences = slots.values().filter_map(|[before, after]| {
        let weight = 1000 * before.len() * after.len() / (before.len() + after.len());
        Some((crate::median(after)? - crate::median(before)?, weight as u64))
    });
    let rough = crate::weighted_median(&differences.collect::<Vec<_>>())?;
    let wave = |[before, after]: &[Vec<f64>; 2]| {
        let all: Vec<f64> = before.iter().copied().chain(after.iter().map(|it| it - rough)).collect();
        crate::median(&all)
    };
    let waves: BTreeMap<i64, f64> = slots.iter().filter_map(|(slot, values)| Some((*slot, wave(values)?))).collect();
    let level = waves.values().sum::<f64>() / waves.len() as f64;
    let fewest = before.len().min(after.len());
    if fewest < LEAST_WINDOWS {
        return Some(Change { before: level, change: rough, interval: None, same_hours: false });
    }
    let block = (fewest / LEAST_BLOCKS).clamp(1, BLOCK);
    let rest =
        |windows: &[Window]| -> Vec<f64> { windows.iter().map(|window| window.value - waves[&slot(window)]).collect() };
    let (at_first, of_first) = blocks(&rest(before), block);
    let (at_second, of_second) = blocks(&rest(after), block);
    let (change, sides) = (at_second - at_first, [of_first, of_second]);
    let (count, taken) = ((before.len() + after.len()) as f64, slots.len() as f64 + 1.0);
    let interval = Noise::of(&sides, count, taken).map(|noise| {
        let variance: f64 = sides.iter().map(|side| noise.variance / side.len() as f64).sum();
        let spread = OF_99.at(noise.free) * variance.sqrt();
        (change - spread, change + spread)
    });
    Some(Change { before: level + at_first, change, interval, same_hours: false })
}

/// The mean of the medians of blocks, and how far each is from it.
fn blocks(rest: &[f64], block: usize) -> (f64, Vec<f64>) {
    let whole = rest.chunks(block).filter(|it| 2 * it.len() >= block);
    let medians: Vec<f64> = whole.filter_map(crate::median).collect();
    let mean = medians.iter().sum::<f64>() / medians.len() as f64;
    (mean, medians.into_iter().map(|it| it - mean).collect())
}

/// How much the values of blocks vary, from `count` values that `taken` waves and levels were taken off.
struct Noise {
    /// Of a block, with what it has in common with its neighbours.
    variance: f64,
    /// Degrees of freedom that are left.
    free: f64,
}

impl Noise {
    fn of(sides: &[Vec<f64>], count: f64, taken: f64) -> Option<Self> {
        if count <= taken {
            return None;
        }
        // Each wave and level that is taken off explains a part of the noise as well.
        let lost = count / (count - taken);
        let blocks: usize = sides.iter().map(Vec::len).sum();
        let free = ((blocks - sides.len()) as f64 / lost).max(1.0);
        let squares: f64 = sides.iter().flatten().map(|it| it * it).sum();
        if squares == 0.0 {
            return Some(Self { variance: 0.0, free });
        }
        let products: f64 = sides.iter().flat_map(|side| side.windows(2)).map(|pair| pair[0] * pair[1]).sum();
        // A short series shows less correlation than there is (Kendall, 1954).
        let correlation = products / squares;
        let correlation = correlation + (1.0 + 3.0 * correlation) / free;
        let correlation = correlation.clamp(0.0, MOST_CORRELATION);
        let less = (1.0 - correlation * correlation) / (1.0 + correlation * correlation);
        let alike = (1.0 + correlation) / (1.0 - correlation);
        Some(Self { variance: squares / free * alike, free: (free * less).max(LEAST_FREE) })
    }
}

/// Points of Student's distribution: with 1, 2 and more degrees of freedom, and of the normal distribution.
struct Points {
    few: [f64; 10],
    normal: f64,
}

/// The ends of a 95 % interval.
const OF_95: Points =
    Points { few: [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228], normal: 1.959_964 };
/// The ends of a 99 % interval.
const OF_99: Points =
    Points { few: [63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169], normal: 2.575_829 };

impl Points {
    fn at(&self, free: f64) -> f64 {
        let z = self.normal;
        match free.floor() {
            less if less < 1.0 => self.few[0],
            few if few <= self.few.len() as f64 => self.few[few as usize - 1],
            // The first terms of Fisher's expansion.
            _ => {
                let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * free * free);
                z + (z.powi(3) + z) / (4.0 * free) + second
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u32 = 24;
    const LEVEL: f64 = 400.0;

    /// A service as one value an hour: a daily wave, and noise that is correlated from hour to hour. Every few days it
    /// restarts; then its memory grows to its level within hours.
    struct Service {
        random: fastrand::Rng,
        noise: f64,
        phase: f64,
        /// The part of the noise that stays to the next hour.
        stays: f64,
    }

    impl Service {
        fn new(seed: u64, stays: f64) -> Self {
            let mut random = fastrand::Rng::with_seed(seed);
            let phase = random.f64();
            Self { random, noise: 0.0, phase, stays }
        }

        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
        }

        /// `hours` windows from `from` on, at `level` of the usual.
        fn windows(&mut self, from: i64, hours: i64, level: f64) -> Vec<Window> {
            let new = (1.0 - self.stays * self.stays).sqrt();
            let mut since_restart: u32 = 48;
            (from..from + hours)
                .map(|number| {
                    self.noise = self.stays * self.noise + new * 0.02 * LEVEL * self.normal();
                    since_restart = if self.random.f64() < 1.0 / 60.0 { 0 } else { since_restart + 1 };
                    let of_day = std::f64::consts::TAU * ((number % 24) as f64 / 24.0 + self.phase);
                    let wave = 1.0 + 0.15 * of_day.sin();
                    let grown = 1.0 - 0.1 * (-f64::from(since_restart) / 2.0).exp();
                    Window { number, value: level * LEVEL * wave * grown + self.noise }
                })
                .collect()
        }
    }

    /// How many of 100 series have an interval without 0.
    fn told(hours: [i64; 2], level: f64, stays: f64, seed: u64) -> usize {
        (0..100)
            .filter(|series| {
                let mut service = Service::new(seed * 1000 + series, stays);
                let before = service.windows(7, hours[0], 1.0);
                let after = service.windows(7 + hours[0], hours[1], level);
                let change = change(&before, &after, Some(DAY)).unwrap();
                assert!(change.same_hours);
                change.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
            })
            .count()
    }

    /// Three figures are tried, so each may be wrong in 1 or 2 of 100 series.
    #[test]
    fn no_change_is_found_where_there_is_none() {
        for hours in [[168, 168], [72, 72], [48, 48], [24, 24], [168, 17], [24, 17], [12, 30]] {
            for (stays, most) in [(0.0, 6), (0.5, 6), (0.8, 9)] {
                let found: usize = (0..3).map(|seed| told(hours, 1.0, stays, seed)).sum();
                println!("{hours:?}, {stays} stays: {found} of 300");
                assert!(found <= most, "{hours:?}, {stays} stays: {found} of 300");
            }
        }
    }

    #[test]
    fn a_change_of_5_percent_is_found_in_a_week() {
        for (hours, stays, least) in
            [([168, 168], 0.0, 100), ([168, 168], 0.8, 95), ([72, 72], 0.5, 90), ([168, 17], 0.0, 85)]
        {
            let found = told(hours, 0.95, stays, 5);
            println!("{hours:?}, {stays} stays: {found} of 100");
            assert!(found >= least, "{hours:?}, {stays} stays: {found} of 100");
        }
    }

    #[test]
    fn a_drift_is_found_and_a_wave_is_none() {
        let rise = 0.05 * LEVEL / f64::from(DAY);
        let (mut wrong, mut found, mut holds) = (0, 0, 0);
        for seed in 0..100 {
            let flat = Service::new(seed, 0.8).windows(7, 168, 1.0);
            let up = |it: &Window| Window { value: it.value + rise * it.number as f64, ..*it };
            let rising: Vec<Window> = flat.iter().map(up).collect();
            let differs = |slope: Slope| slope.low > 0.0 || slope.high < 0.0;
            wrong += usize::from(drift(&flat, Some(DAY)).is_some_and(differs));
            let slope = drift(&rising, Some(DAY)).unwrap();
            found += usize::from(differs(slope));
            holds += usize::from((slope.low..=slope.high).contains(&rise));
        }
        assert!(wrong <= 8 && found >= 95 && holds >= 92, "{wrong} wrong, {found} found, {holds} hold");
        let day = Service::new(1, 0.0).windows(0, 30, 1.0);
        assert_eq!(drift(&day, Some(DAY)), None, "less than two days");
        assert!(drift(&day, None).is_some());
        assert_eq!(drift(&day[..5], None), None);
    }

    #[test]
    fn periods_without_common_hours_are_compared_as_they_are() {
        let windows = |numbers: std::ops::Range<i64>, value: f64| -> Vec<Window> {
            numbers.map(|number| Window { number, value: value + (number % 2) as f64 }).collect()
        };
        let (night, day) = (windows(0..8, 100.0), windows(8..16, 200.0));
        let apart = change(&night, &day, Some(DAY)).unwrap();
        assert!(!apart.same_hours);
        assert_eq!((apart.before, apart.change), (100.5, 100.0));
        let next_night = windows(24..32, 90.0);
        let same = change(&night, &next_night, Some(DAY)).unwrap();
        assert_eq!((same.same_hours, same.change, same.interval), (true, -10.0, Some((-10.0, -10.0))));
        assert_eq!(ends(&night, &next_night, Some(DAY), &same), None);
        let ended = [next_night, windows(32..40, 100.0)].concat();
        let same = change(&[night, windows(8..16, 100.0)].concat(), &ended, Some(DAY)).unwrap();
        let end = ends(&windows(0..16, 100.0), &ended, Some(DAY), &Change { change: -10.0, ..same });
        assert!(end.is_some_and(|end| (31..=32).contains(&end)), "{end:?}");
        assert_eq!(change(&[], &day, Some(DAY)), None);
        assert_eq!(change(&day[..2], &day, None).unwrap().interval, None, "too few");
    }

    #[test]
    fn students_points_are_those_of_the_tables() {
        for (points, free, expected) in [
            (OF_95, 0.3, 12.706),
            (OF_95, 5.9, 2.571),
            (OF_95, 20.0, 2.086),
            (OF_99, 20.0, 2.845),
            (OF_99, 60.0, 2.660),
        ] {
            assert!((points.at(free) - expected).abs() < 0.003, "{free}: {}", points.at(free));
        }
    }
}
