//! Planted steps are found, and nothing is found where there are none.

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

/// What a monitor tells of a series.
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
    assert!(
        hits >= 95 && others <= 5 && wrong == 0,
        "{hits} found, {others} others, {wrong} wrong"
    );
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
    let line = |value: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
        (0..480).map(|at| (at as f64, value(at))).collect()
    };
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
    assert_eq!(
        steps(&line(&|at| if at < 20 { 0.0 } else { MB })[..200], 0.0),
        [],
        "too few points"
    );
    assert_eq!(steps(&[], 0.0), []);
}
