//! A trial against an earlier one of the same workload: what changed, and whether it is worse.
//!
//! Used by `commands/compare`. Pure. "Worse" needs an interval of the difference that does not include 0 (both
//! trials are resampled, so it holds what is uncertain about either), more than what is too small to
//! matter, and more than the threshold.

use super::summary;
use crate::results::against::{Against, Change, Changes, Judgement};
use crate::results::sureness::Reading;
use crate::results::{Column, Machine, Metric, Trial, Variant, Workload as WorkloadFacts};
use std::path::Path;

/// The figures that are shown, and whether a change for the worse counts. The 99th percentile of few
/// requests jumps by itself.
const COLUMNS: [(Column, bool); 5] = [
    (Column::AfterRest, true),
    (Column::Peak, true),
    (Column::Cpu, true),
    (Column::Throughput, true),
    (Column::P99, false),
];

/// Why two trials cannot be compared; `None` where they can.
pub fn refusal(before: &Trial, workload: &WorkloadFacts, metric: Metric) -> Option<String> {
    let then = &before.workload;
    let differs = |what: &str, then: &str, now: &str| Some(format!("its {what} is {then}, but {now} in this trial"));
    let profile = |workload: &WorkloadFacts| workload.profile.clone().unwrap_or("none".into());
    if then.name != workload.name {
        return differs("workload", &then.name, &workload.name);
    }
    if then.profile != workload.profile {
        return differs("profile", &profile(then), &profile(workload));
    }
    if before.metric != metric {
        return differs("memory", before.metric.label(), metric.label());
    }
    let (vars, cycles) = (then.vars != workload.vars, then.cycles != workload.cycles);
    if vars || cycles {
        let what = if vars { "variables" } else { "cycles" };
        return Some(format!("the workload's {what} have changed since"));
    }
    match (&then.digest, &workload.digest) {
        (Some(then), Some(now)) if then != now => {
            Some("the workload's phases, commands or load files have changed since".to_owned())
        }
        _ => None,
    }
}

/// What this trial says against an earlier one. `now` has its summaries.
pub fn compare(file: &Path, before: &Trial, now: &[Variant], machine: &Machine, threshold_share: f64) -> Against {
    let mut notes = Vec::new();
    if before.workload.digest.is_none() {
        notes.push(
            "the earlier results have no digest of their workload: only its name, variables and cycles were compared"
                .to_owned(),
        );
    }
    let mut variants = Vec::new();
    for variant in now {
        let same_name = |other: &&Variant| other.name == variant.name;
        let Some(then) = before.variants.iter().find(same_name) else {
            notes.push(format!("{} is not in the earlier results", variant.name));
            continue;
        };
        if (&then.allocator, &then.env) != (&variant.allocator, &variant.env) {
            notes.push(format!("{} had another allocator or environment", variant.name));
        }
        variants.push(Changes {
            name: variant.name.clone(),
            columns: COLUMNS
                .iter()
                .filter_map(|(column, _)| Some((*column, change(*column, then, variant, threshold_share)?)))
                .collect(),
        });
    }
    let gone = |then: &&Variant| !now.iter().any(|variant| variant.name == then.name);
    for then in before.variants.iter().filter(gone) {
        notes.push(format!("{} was in the earlier results", then.name));
    }
    let worse = worse(&variants);
    let enough = variants
        .iter()
        .filter_map(|changes| changes.columns.get(&Column::AfterRest))
        .any(|change| change.difference.interval.is_some());
    let mut against = Against {
        file: file.to_owned(),
        started: before.started.clone(),
        ebb_version: before.ebb_version.clone(),
        threshold_share,
        machine_differs: machine_differs(&before.machine, machine),
        notes,
        variants,
        worse,
        enough,
        sentence: String::new(),
    };
    against.sentence = sentence(&against);
    against
}

fn change(column: Column, then: &Variant, now: &Variant, threshold_share: f64) -> Option<Change> {
    let (old, new) = (summary::values(then, column), summary::values(now, column));
    let difference = summary::difference(column, &new, &old)?;
    let before = ebb_statistics::median(&old)?;
    // Times of a disturbed trial tell of the machine.
    let disturbed = !matches!(column, Column::AfterRest | Column::Peak)
        && [then, now].iter().any(|variant| variant.complete().any(|run| run.disturbance.of_times()));
    let higher = difference.value > 0.0;
    let judgement = match difference.reading {
        None | Some(Reading::Unclear) => Judgement::Unclear,
        Some(Reading::NoRealDifference) => Judgement::Same,
        Some(Reading::Real) if disturbed => Judgement::Unclear,
        Some(Reading::Real) if difference.value.abs() < threshold_share * before.abs() => Judgement::Small,
        Some(Reading::Real) if higher == (column == Column::Throughput) => Judgement::Better,
        Some(Reading::Real) => Judgement::Worse,
    };
    Some(Change { before, now: ebb_statistics::median(&new)?, difference, judgement })
}

/// "glibc: after rest 42 % higher".
fn worse(variants: &[Changes]) -> Vec<String> {
    let mut worse = Vec::new();
    for changes in variants {
        for (column, counts) in COLUMNS {
            let change = changes.columns.get(&column);
            let Some(change) = change.filter(|change| change.judgement == Judgement::Worse) else {
                continue;
            };
            if counts {
                worse.push(format!(
                    "{}: {} {:.0} % {}",
                    changes.name,
                    column.label(),
                    (change.difference.value / change.before * 100.0).abs(),
                    if change.difference.value > 0.0 { "higher" } else { "lower" }
                ));
            }
        }
    }
    worse
}

fn machine_differs(then: &Machine, now: &Machine) -> Vec<String> {
    let text = |value: &Option<usize>| value.map(|value| value.to_string());
    // A kernel rounds what it leaves: a few pages are no other machine.
    let gigabytes = |value: &Option<u64>| value.map(|bytes| format!("{:.1} GB", bytes as f64 / 1e9));
    let fields = [
        ("processor", then.cpu.clone(), now.cpu.clone()),
        ("processors", text(&then.processors), text(&now.processors)),
        ("memory", gigabytes(&then.memory_bytes), gigabytes(&now.memory_bytes)),
        ("kernel", then.kernel.clone(), now.kernel.clone()),
        ("transparent huge pages", then.thp.clone(), now.thp.clone()),
        ("system", then.system.clone(), now.system.clone()),
    ];
    fields
        .into_iter()
        .filter_map(|(name, then, now)| {
            let (then, now) = (then?, now?);
            (then != now).then(|| format!("{name}: {then} then, {now} now"))
        })
        .collect()
}

fn sentence(against: &Against) -> String {
    let count = |judgement: Judgement| {
        let changes = against.variants.iter().flat_map(|changes| changes.columns.values());
        changes.filter(|change| change.judgement == judgement).count()
    };
    let machine = if against.machine_differs.is_empty() { "" } else { " The machine differs." };
    let since = &against.started;
    if against.variants.iter().all(|changes| changes.columns.is_empty()) {
        return format!("Nothing can be compared with the trial of {since}.{machine}");
    }
    if !against.worse.is_empty() {
        return format!("Worse than {since}: {}.{machine}", against.worse.join("; "));
    }
    let better = match count(Judgement::Better) {
        0 => String::new(),
        1 => ", one figure is better".to_owned(),
        better => format!(", {better} figures are better"),
    };
    let unclear = match count(Judgement::Unclear) {
        0 => String::new(),
        unclear => format!(", {unclear} are unclear"),
    };
    format!("Nothing is worse than {since}{better}{unclear}.{machine}")
}

#[cfg(test)]
mod tests {
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
        assert!(said.notes.iter().any(|note| note == "ebbmalloc was in the earlier results"), "{said:?}");
        assert!(said.sentence.ends_with("The machine differs."));
    }
}
