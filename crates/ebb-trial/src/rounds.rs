//! How often a trial goes round: a number of times, or until it is sure.
//!
//! Used by the engine between two rounds; a round is one run of every variant that has not failed. Pure.
//!
//! The rule has a fixed width, not a significance: it stops when the intervals are narrow, whichever way
//! they lie. A trial that looked for "significant" after each round would find it sooner or later
//! between two equal variants. What this rule costs the intervals is in docs/decisions/0027-until-sure.md.

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

    /// The least number of rounds.
    pub fn least(self) -> u32 {
        match self {
            Rounds::Fixed(count) => count,
            Rounds::UntilSure(sure) => sure.least,
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
        !compared.is_empty()
            && compared.iter().all(|variant| width(variant).is_some_and(|width| width <= wanted))
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
    let counts = |variant: &Variant| {
        variant.runs.is_empty() || variant.runs.iter().any(|run| run.outcome == Outcome::Complete)
    };
    let both = progress.variants.iter().zip(progress.running);
    let alive: Vec<&Variant> = both
        .filter(|(variant, runs)| **runs && counts(variant))
        .map(|(variant, _)| variant)
        .collect();
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
mod tests;
