//! Recorded trials against each other.

use super::*;
use crate::example;
use crate::results::Run;
use std::path::PathBuf;

/// The example's first two variants, five runs each, with these figures after the rest in MB.
fn trial(glibc: [f64; 5], ours: [f64; 5]) -> Trial {
    let mut trial = example::trial();
    trial.variants.truncate(2);
    for (variant, figures) in trial.variants.iter_mut().zip([glibc, ours]) {
        let example = variant.runs[0].clone();
        variant.runs = (1..)
            .zip(figures)
            .map(|(repetition, mb)| {
                let mut run = Run { repetition, ..example.clone() };
                run.measures.after_rest_bytes = Some(mb * 1e6);
                run.measures.cpu_s = Some(10.0 + mb / 1000.0);
                run.measures.throughput_per_s = Some(1000.0 - mb);
                run
            })
            .collect();
    }
    trial
}

fn against(before: &Trial, now: &Trial) -> Against {
    let file = PathBuf::from("results.json");
    compare(&file, before, &now.variants, &now.machine, 0.1)
}

const GLIBC: [f64; 5] = [340.0, 341.0, 343.0, 344.0, 345.0];
const OURS: [f64; 5] = [60.0, 60.5, 61.0, 61.5, 62.0];

#[test]
fn a_change_is_worse_beyond_noise_and_threshold_only() {
    use Judgement::{Same, Small, Unclear, Worse};
    let high = [80.0, 81.0, 82.0, 83.0, 84.0];
    let small = [365.0, 366.0, 367.0, 368.0, 369.0];
    let noisy = [50.0, 55.0, 80.0, 120.0, 150.0];
    for (glibc, ours, judgements, worse) in [
        (GLIBC, OURS, [Same, Same], ""),
        (GLIBC, high, [Same, Worse], "ebbmalloc: after rest 34 % higher"),
        (small, OURS, [Small, Same], ""),
        (GLIBC, noisy, [Same, Unclear], ""),
    ] {
        let said = against(&trial(GLIBC, OURS), &trial(glibc, ours));
        let seen = said.variants.iter().map(|it| it.columns[&Column::AfterRest].judgement);
        assert_eq!(seen.collect::<Vec<_>>(), judgements, "{said:?}");
        assert_eq!((said.worse.join("; ").as_str(), said.enough), (worse, true));
        let start = if worse.is_empty() { "Nothing is worse than" } else { "Worse than" };
        assert!(said.sentence.starts_with(&format!("{start} 2026-01-02T03:04:05Z")), "{said:?}");
    }
}

#[test]
fn lower_throughput_is_worse_but_not_on_a_disturbed_machine() {
    let before = trial(GLIBC, OURS);
    let mut now = trial(GLIBC, OURS);
    for run in &mut now.variants[0].runs {
        run.measures.throughput_per_s = run.measures.throughput_per_s.map(|it| it / 2.0);
    }
    assert_eq!(against(&before, &now).worse, ["glibc: requests/s 50 % lower"]);
    now.variants[0].runs[3].disturbance.others_cpu_share = Some(0.5);
    let said = against(&before, &now);
    assert!(said.worse.is_empty(), "{said:?}");
    assert_eq!(said.variants[0].columns[&Column::Throughput].judgement, Judgement::Unclear);
}

#[test]
fn one_run_tells_nothing() {
    let before = trial(GLIBC, OURS);
    let mut now = trial(GLIBC, [80.0; 5]);
    for variant in &mut now.variants {
        variant.runs.truncate(1);
    }
    let said = against(&before, &now);
    assert!(!said.enough && said.worse.is_empty(), "{said:?}");
}

#[test]
fn another_workload_is_refused_and_another_machine_is_told() {
    let before = trial(GLIBC, OURS);
    let mut workload = before.workload.clone();
    let refuse = |workload: &WorkloadFacts| refusal(&before, workload, Metric::Rss);
    assert_eq!(refuse(&workload), None);
    workload.digest = Some("b".into());
    assert_eq!(refuse(&workload), None, "the earlier one has none");
    let mut with_digest = before.clone();
    with_digest.workload.digest = Some("a".into());
    assert!(refusal(&with_digest, &workload, Metric::Rss).unwrap().contains("load files"));
    workload.cycles.insert("bursts".into(), 3);
    assert!(refuse(&workload).unwrap().contains("cycles"));
    workload.profile = None;
    assert!(refuse(&workload).unwrap().contains("profile is demo"));
    assert!(refusal(&before, &before.workload, Metric::Pss).unwrap().contains("memory is RSS"));

    let mut other = before.clone();
    other.machine.processors = Some(64);
    other.variants.remove(1);
    let said = against(&before, &other);
    assert_eq!(said.machine_differs, ["processors: 2 then, 64 now"]);
    assert!(
        said.notes.iter().any(|note| note == "ebbmalloc was in the earlier results"),
        "{said:?}"
    );
    assert!(said.sentence.ends_with("The machine differs."));
}
