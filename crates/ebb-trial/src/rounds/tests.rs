//! The rule on recorded figures, and what it does to the intervals, by simulation.

use super::*;
use crate::results::{Difference, Figure, Summary};
use ebb_statistics::difference_interval;

fn variant(name: &str, held_mb: f64, interval_mb: Option<(f64, f64)>) -> Variant {
    let figure = Figure {
        n: 5,
        median: held_mb * 1e6,
        min: held_mb * 1e6,
        max: held_mb * 1e6,
        versus_first: interval_mb.map(|(low, high)| Difference {
            value: 0.0,
            interval: Some((low * 1e6, high * 1e6)),
            reading: None,
        }),
    };
    Variant {
        summary: Some(Summary {
            runs: 5,
            errors: 0,
            figures: [(Column::AfterRest, figure)].into(),
        }),
        ..Variant::new(name, name)
    }
}

const SURE: Sure = Sure { share: 0.05, budget: Duration::from_secs(600), least: 5 };

fn after(done: u32, seconds: u64, variants: &[Variant]) -> Result<(), Option<StopReason>> {
    let running = vec![true; variants.len()];
    Rounds::UntilSure(SURE).next(&Progress {
        variants,
        running: &running,
        done,
        elapsed: Duration::from_secs(seconds),
        longest: Duration::from_secs(60),
    })
}

#[test]
fn it_stops_when_every_interval_is_narrow_or_the_next_round_would_not_fit() {
    let first = || variant("glibc", 200.0, None);
    let wide = [
        first(),
        variant("a", 190.0, Some((-12.0, -2.0))),
        variant("b", 100.0, Some((-130.0, -70.0))),
    ];
    let narrow = [
        first(),
        variant("a", 200.0, Some((-5.0, 4.0))),
        variant("b", 100.0, Some((-101.0, -99.0))),
    ];
    let small = [variant("glibc", 20.0, None), variant("b", 19.0, Some((-2.4, 0.4)))];
    for (what, variants, done, seconds, end) in [
        ("60 MB are more than 5 % of 200", &wide[..], 5, 300, None),
        ("narrow, whichever way they lie", &narrow, 5, 300, Some(StopReason::Sure)),
        ("not before five", &narrow, 4, 240, None),
        ("a round fits", &wide, 8, 540, None),
        ("no round fits", &wide, 9, 541, Some(StopReason::Budget)),
        ("nor early", &wide, 2, 541, Some(StopReason::Budget)),
        ("one round is always done", &wide, 0, 0, None),
        (
            "few megabytes are narrow enough for a small service",
            &small,
            5,
            1,
            Some(StopReason::Sure),
        ),
    ] {
        assert_eq!(
            after(done, seconds, variants),
            end.map_or(Ok(()), |end| Err(Some(end))),
            "{what}"
        );
    }
    let mut progress = Progress {
        variants: &wide,
        running: &[true; 3],
        done: 9,
        elapsed: Duration::from_secs(541),
        longest: Duration::from_secs(60),
    };
    let told = SURE.stopping(&progress, StopReason::Budget);
    assert_eq!((told.wanted_bytes, told.reached_bytes), (Some(10e6), Some(60e6)));
    assert_eq!(told.widest.as_deref(), Some("b"));
    // Without the first variant there is nothing to be sure of.
    (progress.running, progress.done) = (&[false, true, true], 2);
    progress.elapsed = Duration::from_secs(20);
    let end = Rounds::UntilSure(SURE).next(&progress);
    assert_eq!(end, Err(Some(StopReason::NothingToCompare)));
}

/// Noise with the spread 1, near a normal distribution.
fn noise(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// Share of trials whose interval holds the true difference of 3, and their mean number of rounds, under
/// a rule that says after which round to stop.
fn coverage(trials: u32, stop: impl Fn(&[f64], &[f64]) -> bool) -> (f64, f64) {
    let mut random = fastrand::Rng::with_seed(11);
    let (mut held, mut rounds) = (0_u32, 0_u32);
    for _ in 0..trials {
        let (mut first, mut other) = (Vec::new(), Vec::new());
        let (low, high) = loop {
            first.push(10.0 + noise(&mut random));
            other.push(13.0 + noise(&mut random));
            rounds += 1;
            if first.len() >= 40 || stop(&first, &other) {
                break difference_interval(&other, &first).unwrap();
            }
        };
        held += u32::from(low <= 3.0 && 3.0 <= high);
    }
    (f64::from(held) / f64::from(trials), f64::from(rounds) / f64::from(trials))
}

fn narrow(wanted: f64) -> impl Fn(&[f64], &[f64]) -> bool {
    move |first, other| {
        first.len() >= LEAST as usize
            && difference_interval(other, first).is_some_and(|(low, high)| high - low <= wanted)
    }
}

/// The price of looking after every round, roughly. docs/decisions/0027-until-sure.md has the whole table.
#[test]
fn intervals_of_the_rule_hold_the_truth_nearly_as_often_as_those_of_a_fixed_number() {
    let (rule, rounds) = coverage(60, narrow(2.5));
    assert!((5.0..15.0).contains(&rounds), "{rounds} rounds");
    assert!(rule >= 0.8, "{rule}");
}

/// How often a difference is found between equals, of 100: by a rule that waits for significance, by this
/// one at its stop.
fn found_between_equals(wanted: f64) -> (u32, u32) {
    let mut random = fastrand::Rng::with_seed(5);
    let (mut by_significance, mut by_width) = (0, 0);
    for _ in 0..100 {
        let (mut first, mut other) = (Vec::new(), Vec::new());
        let (mut found, mut decided) = (false, None);
        for round in 1..=40 {
            first.push(noise(&mut random));
            other.push(noise(&mut random));
            if round < LEAST {
                continue;
            }
            let (low, high) = difference_interval(&other, &first).unwrap();
            let significant = low > 0.0 || high < 0.0;
            found |= significant;
            if high - low <= wanted && decided.is_none() {
                decided = Some(significant);
            }
        }
        by_significance += u32::from(found);
        by_width += u32::from(decided.unwrap_or(false));
    }
    (by_significance, by_width)
}

/// Prints the table of the decision; run by hand: `cargo test -p ebb-trial --release rounds -- --ignored --nocapture`.
#[test]
#[ignore = "prints a table"]
fn table_of_the_decision() {
    const TRIALS: u32 = 1000;
    for fixed in [5, 7, 10, 20] {
        let (held, _) = coverage(TRIALS, |first, _| first.len() >= fixed);
        println!("fixed {fixed}: {:.1} %", held * 100.0);
    }
    for wanted in [3.0, 2.0, 1.5] {
        let (held, rounds) = coverage(TRIALS, narrow(wanted));
        println!("width {wanted}: {:.1} %, {rounds:.1} rounds", held * 100.0);
        let once = narrow(wanted);
        let twice = |first: &[f64], other: &[f64]| {
            first.len() > LEAST as usize
                && once(first, other)
                && once(&first[..first.len() - 1], &other[..other.len() - 1])
        };
        let (held, rounds) = coverage(TRIALS, twice);
        println!("twice {wanted}: {:.1} %, {rounds:.1} rounds", held * 100.0);
    }
    let (by_significance, by_width) = found_between_equals(1.5);
    println!("between equals: {by_significance} % by significance, {by_width} % by width");
}
