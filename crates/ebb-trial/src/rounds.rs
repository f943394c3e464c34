//! How often a trial goes round: a number of times, or until it is sure.
//!
//! Used by the engine between two rounds; a round is one run of every variant that has not failed. Pure.
//!
//! The rule has a fixed width, not a significance: it stops when the intervals are narrow, whichever way
//! they lie. A trial that looked for "significant" after each round would find it sooner or later
//! between two equal variants. docs/compare.md says what this rule costs the intervals.

use super::summary;
use crate::results::sureness::{StopReason, Stopping};
use crate::results::{Column, Outcome, Variant};
use std::time::Duration;

/// An interval from fewer runs is too often narrow by chance.
pub const LEAST: u32 = 5;
/// More rounds than anybody waits for.
const MOST: u32 = 100;

/// Number of repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rounds {
    /// This number of times.
    Fixed(u32),
    /// Until the intervals are narrow or the time is spent.
    UntilSure(Sure),
}

/// When a trial is sure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sure {
    /// Width of the 95 % interval of every difference in memory after the rest, as a share of what the
    /// first variant holds.
    pub share: f64,
    /// Time that it may take.
    pub budget: Duration,
    /// Rounds before it is asked.
    pub least: u32,
}

/// What is known between two rounds.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The results so far, with their summaries.
    pub variants: &'a [Variant],
    /// Which of them still run.
    pub running: &'a [bool],
    /// Rounds that are done.
    pub done: u32,
    /// Time since the first began.
    pub elapsed: Duration,
    /// The longest round so far.
    pub longest: Duration,
}

impl Rounds {
    /// How many rounds there will be, where that is known.
    pub fn known(self) -> Option<u32> {
        match self {
            Rounds::Fixed(count) => Some(count),
            Rounds::UntilSure(_) => None,
        }
    }

    /// Whether another round is to be done; else why not, for a rule that has reasons.
    pub fn next(self, progress: &Progress) -> Result<(), Option<StopReason>> {
        let sure = match self {
            Rounds::Fixed(count) if progress.done < count => return Ok(()),
            Rounds::Fixed(_) => return Err(None),
            Rounds::UntilSure(sure) => sure,
        };
        if progress.done == 0 {
            return Ok(());
        }
        if progress.elapsed + progress.longest > sure.budget {
            let sure = sure.is_reached(progress);
            return Err(Some(if sure { StopReason::Sure } else { StopReason::Budget }));
        }
        if compared(progress).is_empty() {
            return Err(Some(StopReason::NothingToCompare));
        }
        if progress.done < sure.least {
            return Ok(());
        }
        if sure.is_reached(progress) {
            return Err(Some(StopReason::Sure));
        }
        if progress.done < MOST { Ok(()) } else { Err(Some(StopReason::MostRepetitions)) }
    }
}

impl Sure {
    fn is_reached(&self, progress: &Progress) -> bool {
        if progress.done < self.least {
            return false;
        }
        let Some(wanted) = self.wanted(progress.variants) else {
            return false;
        };
        let compared = compared(progress);
        !compared.is_empty() && compared.iter().all(|variant| width(variant).is_some_and(|width| width <= wanted))
    }

    /// The width that is wanted, in bytes; never less than what is too small to matter.
    fn wanted(&self, variants: &[Variant]) -> Option<f64> {
        let held = variants.first()?.median(Column::AfterRest)?;
        Some((held * self.share).max(summary::SMALL_BYTES))
    }

    /// How the repetitions ended, for the report.
    pub fn stopping(&self, progress: &Progress, end: StopReason) -> Stopping {
        let widest = compared(progress)
            .into_iter()
            .filter_map(|variant| Some((width(variant)?, variant)))
            .max_by(|left, right| left.0.total_cmp(&right.0));
        Stopping {
            end,
            wanted_share: self.share,
            wanted_bytes: self.wanted(progress.variants),
            reached_bytes: widest.map(|(width, _)| width),
            widest: widest.map(|(_, variant)| variant.name.clone()),
            repetitions: progress.done,
            budget_s: self.budget.as_secs_f64(),
        }
    }
}

/// The variants whose difference to the first is waited for: the ones that run and give runs that count. One
/// whose every run is discarded would never get an interval.
fn compared<'a>(progress: &Progress<'a>) -> Vec<&'a Variant> {
    let counts =
        |variant: &Variant| variant.runs.is_empty() || variant.runs.iter().any(|run| run.outcome == Outcome::Complete);
    let both = progress.variants.iter().zip(progress.running);
    let alive: Vec<&Variant> =
        both.filter(|(variant, runs)| **runs && counts(variant)).map(|(variant, _)| variant).collect();
    match (alive.first(), progress.variants.first()) {
        (Some(alive_first), Some(first)) if alive_first.name == first.name => alive[1..].to_vec(),
        _ => Vec::new(),
    }
}

fn width(variant: &Variant) -> Option<f64> {
    let (low, high) = variant.figure(Column::AfterRest)?.versus_first?.interval?;
    Some(high - low)
}

#[cfg(test)]
mod tests {
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
            summary: Some(Summary { runs: 5, errors: 0, figures: [(Column::AfterRest, figure)].into() }),
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
        let wide = [first(), variant("a", 190.0, Some((-12.0, -2.0))), variant("b", 100.0, Some((-130.0, -70.0)))];
        let narrow = [first(), variant("a", 200.0, Some((-5.0, 4.0))), variant("b", 100.0, Some((-101.0, -99.0)))];
        let small = [variant("glibc", 20.0, None), variant("b", 19.0, Some((-2.4, 0.4)))];
        for (what, variants, done, seconds, end) in [
            ("60 MB are more than 5 % of 200", &wide[..], 5, 300, None),
            ("narrow, whichever way they lie", &narrow, 5, 300, Some(StopReason::Sure)),
            ("not before five", &narrow, 4, 240, None),
            ("a round fits", &wide, 8, 540, None),
            ("no round fits", &wide, 9, 541, Some(StopReason::Budget)),
            ("nor early", &wide, 2, 541, Some(StopReason::Budget)),
            ("one round is always done", &wide, 0, 0, None),
            ("few megabytes are narrow enough for a small service", &small, 5, 1, Some(StopReason::Sure)),
        ] {
            assert_eq!(after(done, seconds, variants), end.map_or(Ok(()), |end| Err(Some(end))), "{what}");
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

    /// The price of looking after every round, roughly.
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
}
