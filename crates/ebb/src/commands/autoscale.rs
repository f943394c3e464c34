//! `--autoscale` of `ebb diff` and `ebb compare`: the settings of an autoscaler in one argument.

use std::collections::BTreeMap;

use crate::arguments;
use crate::exit::Failure;
use ebb_diagnosis::autoscale::{simulate, target_bytes};
pub use ebb_diagnosis::facts::autoscale::Settings;
use ebb_diagnosis::facts::autoscale::{Look, Outcome, Seen, Target};
use ebb_trial::results::{Autoscale, Metric, Run, Trial, Variant};

/// What Kubernetes creates without `minReplicas`, and a number of replicas that few services exceed.
const MIN: u32 = 1;
const MAX: u32 = 20;

/// `target=70%,request=512Mi,min=2,max=20`; all but the target have defaults.
pub fn parse(text: &str) -> Result<Settings, String> {
    let (mut target, mut request, mut min, mut max) = (None, None, MIN, MAX);
    let count = |value: &str| {
        value.parse().ok().filter(|count| *count > 0).ok_or_else(|| format!("{value} is no number of replicas"))
    };
    for part in text.split(',') {
        match part.split_once('=') {
            Some(("target", value)) => target = Some(target_of(value)?),
            Some(("request", value)) => request = Some(arguments::size(value)?),
            Some(("min", value)) => min = count(value)?,
            Some(("max", value)) => max = count(value)?,
            _ => return Err(format!("\"{part}\": write target=70%,request=512Mi,min=2,max=20")),
        }
    }
    if min > max {
        return Err(format!("min={min} is above max={max}"));
    }
    let target = target.ok_or("target=70% (of the request) or target=400Mi is missing")?;
    Ok(Settings { target, request, min, max })
}

fn target_of(value: &str) -> Result<Target, String> {
    let Some(percent) = value.strip_suffix('%') else {
        return arguments::size(value).map(Target::Bytes);
    };
    let share = percent.parse::<f64>().ok().filter(|percent| *percent > 0.0 && *percent <= 1000.0);
    let share = share.ok_or_else(|| format!("{value} is no percentage above 0"))?;
    Ok(Target::Utilization(share / 100.0))
}

/// Refuses settings whose target is not known, before anything runs.
pub fn target(settings: &Settings, limit: Option<u64>) -> Result<f64, Failure> {
    target_bytes(settings, limit).map_err(|error| Failure::usage(format!("--autoscale: {error}")))
}

/// The outcome of each variant with a complete run.
pub fn of_trial(settings: Settings, trial: &Trial) -> Autoscale {
    let outcome = |variant: &Variant| {
        let of = |run: &Run| simulate(&looks(run, trial.metric), &settings, trial.limits.memory_max_bytes);
        let mut outcomes: Vec<Outcome> = variant.complete().filter_map(|run| of(run).ok()).collect();
        outcomes.sort_by(|left, right| left.replicas.total_cmp(&right.replicas));
        let middle = outcomes.len() / 2;
        (middle < outcomes.len()).then(|| (variant.name.clone(), outcomes.swap_remove(middle)))
    };
    let variants: BTreeMap<String, Outcome> = trial.variants.iter().filter_map(outcome).collect();
    Autoscale { settings, variants }
}

/// The process tree as one replica.
fn looks(run: &Run, metric: Metric) -> Vec<Look> {
    let samples = run.samples.iter().filter_map(|sample| {
        let seen = Seen { life: (0, 0), bytes: metric.of(sample)?, oom_kills: 0 };
        Some(Look { at_s: sample.at_s, replicas: vec![seen] })
    });
    samples.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_needed_and_the_rest_has_defaults() {
        let found = parse("target=70%,request=512Mi,min=2,max=10");
        let expected = Settings { target: Target::Utilization(0.7), request: Some(512 << 20), min: 2, max: 10 };
        assert_eq!(found, Ok(expected));
        let found = parse("target=400Mi").map(|it| (it.target, it.request, it.min, it.max));
        assert_eq!(found, Ok((Target::Bytes(400 << 20), None, 1, 20)));
        for (text, expected) in [
            ("min=2", "target=70% (of the request) or target=400Mi is missing"),
            ("70%", "write target=70%"),
            ("target=0%", "no percentage"),
            ("target=x", "write a size"),
            ("target=70%,min=0", "no number of replicas"),
            ("target=70%,min=5,max=4", "above max=4"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
