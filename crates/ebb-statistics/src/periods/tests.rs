//! How often the interval holds the truth, over series with daily waves, noise that lasts for hours, and restarts.

use super::*;

const DAY: u32 = 24;
const LEVEL: f64 = 400.0;

/// A service as one value an hour: a wave of the day, noise of which a part stays to the next hour, and every few days a
/// restart, after which memory grows to its level within hours.
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
