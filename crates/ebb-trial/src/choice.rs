//! What a trial's results say a service should run on.
//!
//! Used by `ebb run --from` and `ebb fix --from`. Pure.

use super::cost::{self, Share};
use super::summary;
use crate::results::sureness::Reading;
use crate::results::{Column, Difference, Trial, Variant};
use ebb_allocators::Allocator;
use std::collections::BTreeMap;

/// More CPU time than this against the same allocator with CPython's own arenas is too much for moving its
/// objects to malloc. ebbmalloc has them without the variable.
const DEARER: f64 = 0.05;
/// The variable that moves them.
const PYTHONMALLOC: &str = "PYTHONMALLOC";

/// What to run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The variant that it comes from.
    pub variant: String,
    /// The allocator, or the path of a shared object.
    pub allocator: String,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// Why, in a few words.
    pub reason: String,
}

/// The variant that the verdict recommends, else the first, which is what the service runs on today;
/// `None` of a trial without variants. `PYTHONMALLOC=malloc` stays only where the CPU time allows.
pub fn of(trial: &Trial) -> Option<Choice> {
    let recommended = trial.verdict.variant.as_deref();
    let named = |name: &str| trial.variants.iter().find(|variant| variant.name == name);
    let (variant, mut reason) = match recommended.and_then(named) {
        Some(variant) => (variant, recommended_by(trial)),
        None => (trial.variants.first()?, "the trial recommends no change".to_owned()),
    };
    let (env, why) = environment(trial, variant);
    if let Some(why) = why {
        reason = format!("{reason}; {why}");
    }
    Some(Choice { variant: variant.name.clone(), allocator: variant.allocator.clone(), env, reason })
}

/// Why a variant is recommended, and which of its costs are unknown.
fn recommended_by(trial: &Trial) -> String {
    let disturbed = trial.canary.is_none() && cost::is_disturbed(&trial.variants);
    let costs = if disturbed { format!(" for its memory; {}", cost::DISTURBED) } else { String::new() };
    format!("the trial recommends it{costs}")
}

/// The environment in which a service should run that runs on this variant: the variant's own, but
/// `PYTHONMALLOC=malloc` stays only where it is needed and the CPU time allows. With notes on that.
pub fn environment(trial: &Trial, variant: &Variant) -> (BTreeMap<String, String>, Option<String>) {
    let mut env = variant.env.clone();
    if !env.contains_key(PYTHONMALLOC) {
        return (env, None);
    }
    if variant.allocator == Allocator::Ebbmalloc.name() {
        env.remove(PYTHONMALLOC);
        let why = "PYTHONMALLOC is left out: ebbmalloc serves CPython's objects without it";
        return (env, Some(why.to_owned()));
    }
    let (stays, why) = allows(trial, variant);
    if !stays {
        env.remove(PYTHONMALLOC);
    }
    (env, Some(why))
}

/// Whether the CPU time allows PYTHONMALLOC, by the same variant without it.
fn allows(trial: &Trial, variant: &Variant) -> (bool, String) {
    let left_out = |why: &str| (false, format!("PYTHONMALLOC is left out: {why}"));
    if cost::is_disturbed(&trial.variants) {
        return left_out("its cost is unknown, because the trial was disturbed");
    }
    let mut without = variant.env.clone();
    without.remove(PYTHONMALLOC);
    let sibling = trial.variants.iter().find(|other| other.allocator == variant.allocator && other.env == without);
    let Some(share) = sibling.and_then(|other| cpu_difference(variant, other)) else {
        return left_out("the trial has no CPU time without it");
    };
    let words = format!("{:+.0} % CPU time{}", share.value * 100.0, share.interval_in_words());
    if share.value <= DEARER || share.reading == Some(Reading::NoRealDifference) {
        (true, format!("PYTHONMALLOC costs {words}"))
    } else {
        left_out(&format!("it costs {words}"))
    }
}

/// The difference in CPU time: of the runs, else of the medians.
fn cpu_difference(with: &Variant, without: &Variant) -> Option<Share> {
    let values = |variant: &Variant| summary::values(variant, Column::Cpu);
    let before = without.median(Column::Cpu)?;
    let difference = summary::difference(Column::Cpu, &values(with), &values(without))
        .or_else(|| Some(Difference { value: with.median(Column::Cpu)? - before, interval: None, reading: None }))?;
    Share::from(Column::Cpu, &difference, before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    /// jemalloc with and without PYTHONMALLOC, the first recommended, with these CPU times.
    fn trial(with: f64, without: f64) -> Trial {
        let mut trial = example::trial();
        trial.variants[1].allocator = "jemalloc".into();
        let mut more = trial.variants[1].clone();
        more.name = "jemalloc+PYTHONMALLOC=malloc".into();
        more.env.insert(PYTHONMALLOC.into(), "malloc".into());
        trial.verdict.variant = Some(more.name.clone());
        trial.variants.push(more);
        let last = trial.variants.len() - 1;
        for (at, seconds) in [(1, without), (last, with)] {
            let summary = trial.variants[at].summary.as_mut().unwrap();
            summary.figures.get_mut(&Column::Cpu).unwrap().median = seconds;
        }
        trial
    }

    #[test]
    fn pythonmalloc_stays_where_it_costs_little_and_is_needed() {
        let mut alone = trial(10.0, 10.0);
        alone.variants.remove(1);
        let mut ours = trial(10.0, 10.0);
        ours.variants.last_mut().unwrap().allocator = Allocator::Ebbmalloc.name().into();
        for (trial, stays, reason) in [
            (trial(10.4, 10.0), true, "PYTHONMALLOC costs +4 % CPU time"),
            (trial(13.0, 10.0), false, "it costs +30 % CPU time"),
            (alone, false, "the trial has no CPU time without it"),
            (ours, false, "ebbmalloc serves CPython's objects without it"),
        ] {
            let choice = of(&trial).unwrap();
            assert!(choice.reason.ends_with(reason), "{}", choice.reason);
            assert_eq!(choice.env.contains_key(PYTHONMALLOC), stays, "{reason}");
        }
    }

    #[test]
    fn a_disturbed_trial_says_nothing_about_cpu_time() {
        let mut trial = trial(10.4, 10.0);
        trial.variants[0].runs[1].disturbance.others_cpu_share = Some(0.4);
        let choice = of(&trial).unwrap();
        assert!(choice.env.is_empty());
        assert_eq!(
            choice.reason,
            "the trial recommends it for its memory; cost unknown: disturbed; PYTHONMALLOC is left out: its cost is \
             unknown, because the trial was disturbed"
        );
    }

    #[test]
    fn without_a_recommendation_nothing_changes() {
        let mut trial = example::trial();
        trial.verdict.variant = None;
        let choice = of(&trial).unwrap();
        assert_eq!((choice.variant.as_str(), choice.allocator.as_str()), ("glibc", "glibc"));
        trial.variants.clear();
        assert_eq!(of(&trial), None);
    }
}
