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
    let differs = |what: &str, then: &str, now: &str| {
        Some(format!("its {what} is {then}, but {now} in this trial"))
    };
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
pub fn compare(
    file: &Path,
    before: &Trial,
    now: &[Variant],
    machine: &Machine,
    threshold_share: f64,
) -> Against {
    let mut notes = Vec::new();
    if before.workload.digest.is_none() {
        notes.push("the earlier results have no digest of their workload: only its name, variables and cycles were compared".to_owned());
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
                .filter_map(|(column, _)| {
                    Some((*column, change(*column, then, variant, threshold_share)?))
                })
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
        && [then, now]
            .iter()
            .any(|variant| variant.complete().any(|run| run.disturbance.of_times()));
    let higher = difference.value > 0.0;
    let judgement = match difference.reading {
        None | Some(Reading::Unclear) => Judgement::Unclear,
        Some(Reading::NoRealDifference) => Judgement::Same,
        Some(Reading::Real) if disturbed => Judgement::Unclear,
        Some(Reading::Real) if difference.value.abs() < threshold_share * before.abs() => {
            Judgement::Small
        }
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
    let gigabytes =
        |value: &Option<u64>| value.map(|bytes| format!("{:.1} GB", bytes as f64 / 1e9));
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
mod tests;
