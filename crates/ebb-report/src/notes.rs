//! Notes next to the tables: what did not run, what does not count, what broke.
//!
//! Used by all three renderings. Nothing that was asked for is ever missing without a note.

use super::{faults, figures};
use ebb_trial::results::sureness::{StopReason, Stopping, Trap};
use ebb_trial::results::{Outcome, Run, Trial, Unit, Variant};
use std::collections::BTreeSet;

/// One thing to say.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// The variant it is about; empty for the whole trial.
    pub about: String,
    pub text: String,
    /// The last lines of what failed.
    pub lines: Vec<String>,
}

impl Note {
    fn new(about: &str, text: String) -> Note {
        Note { about: about.to_owned(), text, lines: Vec::new() }
    }

    /// What it is about, and what happened.
    pub(super) fn sentence(&self) -> String {
        if self.about.is_empty() { self.text.clone() } else { format!("{}: {}", self.about, self.text) }
    }
}

/// Whether no time of the trial is to be trusted.
pub(super) fn is_disturbed(trial: &Trial) -> bool {
    trial.variants.iter().any(Variant::has_disturbed_times)
}

/// Added to times that other programs may have lengthened.
pub(super) fn disturbed(trial: &Trial) -> &'static str {
    if is_disturbed(trial) { "; disturbed, see below" } else { "" }
}

/// All notes of a trial, in the order of the variants.
pub fn of(trial: &Trial) -> Vec<Note> {
    let of_all = |text: String| Note::new("", text);
    let mut notes = Vec::new();
    if trial.interrupted {
        let text = "interrupted: finished runs are kept, unfinished runs do not count";
        notes.push(of_all(text.to_owned()));
    }
    notes.extend(trial.traps.iter().map(trap));
    notes.extend(trial.stopping.as_ref().map(stopping).map(of_all));
    notes.extend(disturbances(trial).into_iter().map(of_all));
    for limit in trial.max_rest.iter().filter(|limit| !limit.kept) {
        let max = figures::megabytes(limit.max_bytes as f64);
        let text = match limit.after_rest_bytes {
            Some(bytes) if bytes <= limit.max_bytes => {
                format!("is within --max-rest of {max} after the rest, but not every run reached it")
            }
            Some(bytes) => {
                let held = figures::megabytes(bytes as f64);
                format!("holds {held} after the rest, above --max-rest of {max}")
            }
            None => format!("did not reach its rest, so it is not within --max-rest of {max}"),
        };
        notes.push(Note::new(&limit.variant, text));
    }
    if let Some(against) = &trial.against {
        let machine = against.machine_differs.iter();
        let lines = machine.map(|line| format!("the machine differs: {line}"));
        notes.extend(lines.chain(against.notes.iter().cloned()).map(of_all));
    }
    for variant in &trial.variants {
        notes.extend(about_variant(variant, trial.repetitions));
    }
    notes
}

fn trap(trap: &Trap) -> Note {
    let text = format!("trap, {}: {}. {}.", trap.kind.label(), trap.sentence, trap.remedy);
    Note::new(trap.variant.as_deref().unwrap_or_default(), text)
}

/// How a trial that went on until it was sure came to its end.
fn stopping(stopping: &Stopping) -> String {
    let mb = |bytes: Option<f64>| bytes.map(|bytes| figures::plain(bytes, Unit::Bytes));
    let wanted = mb(stopping.wanted_bytes).map_or(String::new(), |wanted| {
        format!(
            "; wanted: {wanted} MB ({} % of the first variant's figure, at least 3 MB)",
            (stopping.wanted_share * 1000.0).round() / 10.0
        )
    });
    let reached = match (mb(stopping.reached_bytes), &stopping.widest) {
        (Some(width), Some(name)) => {
            format!("the widest interval after the rest is {width} MB ({name})")
        }
        _ => "there is no interval yet".to_owned(),
    };
    let rounds = figures::counted(stopping.repetitions as usize, "repetition");
    let budget = figures::duration(stopping.budget_s);
    let why = match stopping.end {
        StopReason::Sure => format!("sure after {rounds}"),
        StopReason::Budget => {
            format!("not sure: the budget of {budget} has no room for another repetition after {rounds}")
        }
        StopReason::MostRepetitions => {
            format!("not sure: stopped after {rounds}, the maximum")
        }
        StopReason::NothingToCompare => {
            format!("not sure: after {rounds} fewer than two variants are left to compare")
        }
        StopReason::Interrupted => format!("not sure: interrupted after {rounds}"),
    };
    format!("{why}: {reached}{wanted}")
}

/// What else the machine did, where it was enough to be felt.
fn disturbances(trial: &Trial) -> Vec<String> {
    let runs: Vec<&Run> = trial.variants.iter().flat_map(Variant::complete).collect();
    let all = runs.len();
    let highest = |share: fn(&Run) -> Option<f64>| {
        let highest = runs.iter().filter_map(|run| share(run)).fold(0.0, f64::max);
        format!("{:.0} %", highest * 100.0)
    };
    let mut notes = Vec::new();
    let times = runs.iter().filter(|run| run.disturbance.of_times()).count();
    if times > 0 {
        notes.push(format!(
            "disturbed: in {times} of {all} runs other programs took up to {} of the processors; do not trust CPU \
             time, throughput or latencies; memory after the rest is affected least. Repeat it on a quiet machine",
            highest(|run| run.disturbance.others_cpu_share)
        ));
    }
    let memory = runs.iter().filter(|run| run.disturbance.of_memory()).count();
    if memory > 0 {
        notes.push(format!(
            "disturbed: in {memory} of {all} runs programs on this machine waited for memory up to {} of the time, \
             so the kernel reclaimed pages; do not trust the memory figures. Repeat it with more memory free",
            highest(|run| run.disturbance.memory_pressure_share)
        ));
    }
    notes
}

fn about_variant(variant: &Variant, repetitions: u32) -> Vec<Note> {
    let note = |text: String| Note::new(&variant.name, text);
    if let Some(reason) = &variant.unavailable {
        return vec![note(format!("not run: {reason}"))];
    }
    let mut notes: Vec<Note> = Vec::new();
    for run in &variant.runs {
        let number = run.repetition;
        match &run.outcome {
            Outcome::Complete => notes.extend(run.oom.map(|oom| {
                let when = oom.at_s.map_or(String::new(), |at_s| format!(", the first {at_s:.0} s after readiness"));
                note(format!("run {number}: OOM kills in the service: {}{when}", oom.kills))
            })),
            Outcome::Discarded { reason } => {
                notes.push(note(format!("run {number} discarded: {reason}")));
            }
            Outcome::Failed { reason, last_lines } => {
                notes.push(Note { lines: last_lines.clone(), ..note(format!("run {number} failed: {reason}")) })
            }
            Outcome::Interrupted => notes.push(note(format!("run {number} was interrupted"))),
        }
        notes.extend(
            run.restarts.iter().map(|restart| note(format!("{} at {}", restart.text, figures::duration(restart.at_s)))),
        );
        let causes = figures::cause_lines(&run.events);
        notes.extend(run.steps.iter().map(figures::step_line).chain(causes).map(note));
        for text in &run.notes {
            // The same remark in every repetition is one remark.
            if !notes.iter().any(|note| note.text == *text) {
                notes.push(note(text.clone()));
            }
        }
    }
    let errors = variant.summary.as_ref().map_or(0, |summary| summary.errors);
    if errors > 0 {
        notes.push(note(format!("{errors} requests failed under load")));
    }
    let asked = || variant.complete().flat_map(|run| &run.health);
    let silent = asked().filter(|answer| answer.latency_ms.is_none()).count();
    if silent > 0 {
        let asked = asked().count();
        notes.push(note(format!("the health address failed {silent} of {asked} times under load")));
    }
    let complete = variant.complete().count() as u32;
    if complete > 0 && complete < repetitions {
        notes.push(note(format!("{complete} of {repetitions} runs count")));
    }
    notes
}

/// `after 12 s, 3 of 3 runs` of a variant whose service was killed for lack of memory.
pub fn oom_kills_in_words(variant: &Variant) -> Option<String> {
    let killed: Vec<&Run> = variant.runs.iter().filter(|run| run.oom.is_some()).collect();
    let mut times: Vec<f64> = killed.iter().filter_map(|run| run.oom?.at_s).collect();
    times.sort_by(f64::total_cmp);
    let when = match times.get(times.len() / 2) {
        Some(seconds) => format!("after {}", figures::duration(*seconds)),
        None => "before it was ready".into(),
    };
    (!killed.is_empty()).then(|| format!("{when}, {} of {} runs", killed.len(), variant.runs.len()))
}

/// What it comes to: the verdict, then what a search over settings or an earlier trial adds.
pub fn conclusions(trial: &Trial) -> Vec<&str> {
    let tuned = trial.tuned.as_ref().map(|tuned| tuned.sentence.as_str());
    let against = trial.against.as_ref();
    [trial.verdict.sentence.as_str()]
        .into_iter()
        .chain(trial.placebos.as_ref().map(|placebos| placebos.sentence.as_str()))
        .chain(trial.remains.as_ref().map(|remains| remains.sentence.as_str()))
        .chain(tuned)
        .chain(against.map(|against| against.sentence.as_str()))
        .collect()
}

/// How and where it was measured, in one line each.
pub fn method(trial: &Trial) -> Vec<String> {
    let machine = &trial.machine;
    let mut place: Vec<String> = Vec::new();
    place.extend(machine.cpu.clone());
    place.extend(machine.processors.map(|count| format!("{count} processors")));
    place.extend(machine.memory_bytes.map(figures::gigabytes));
    place.extend(machine.system.clone());
    place.extend(machine.kernel.as_ref().map(|kernel| format!("kernel {kernel}")));
    place.extend(machine.thp.as_ref().map(|thp| format!("transparent huge pages: {thp}")));
    let what = match &trial.canary {
        Some(canary) => vec![format!(
            "{} for {}, a look every {} s, in {} windows of {}; ebb started and stopped nothing and sent no requests.",
            trial.workload.description,
            figures::duration(trial.seconds),
            canary.every_s,
            canary.windows,
            figures::duration(canary.window_s)
        )],
        None => execution_notes(trial),
    };
    // Of replicas that a server knows it is not known.
    let machine = (!place.is_empty()).then(|| format!("Machine: {}.", place.join(", ")));
    let began = format!("Started {} with ebb {}.", trial.started, trial.ebb_version);
    let faults = faults::cost_in_words(trial);
    what.into_iter().chain(faults).chain(machine).chain([began]).collect()
}

/// How a trial went that started its services.
fn execution_notes(trial: &Trial) -> Vec<String> {
    let profile = trial.workload.profile.as_ref();
    let profile = profile.map_or(String::new(), |profile| format!(", profile {profile}"));
    let runs: Vec<&Run> = trial.variants.iter().flat_map(|variant| &variant.runs).collect();
    let mut lines = vec![
        format!("Workload: {}{profile}. {}", trial.workload.name, trial.workload.description),
        format!(
            "{} in {}, variants interleaved, {} requested; the process tree was sampled every {} ms from readiness to the end.",
            figures::counted(runs.len(), "run"),
            figures::duration(trial.seconds),
            figures::counted(trial.repetitions as usize, "repetition"),
            trial.interval_ms
        ),
    ];
    let loads = runs.iter().flat_map(|run| &run.phases);
    let tools: BTreeSet<&str> = loads.filter_map(|span| span.load.as_ref()?.tool.as_deref()).collect();
    if !tools.is_empty() {
        let tools: Vec<&str> = tools.into_iter().collect();
        lines.push(format!("Throughput and latency are as reported by {}.", tools.join(" and ")));
    }
    let memory = trial.limits.memory_max_bytes.map(|bytes| figures::megabytes(bytes as f64));
    let memory = memory.map(|memory| format!("{memory} of memory"));
    let cpus = trial.limits.cpus.map(|cpus| format!("{cpus} processors"));
    let limits: Vec<String> = memory.into_iter().chain(cpus).collect();
    if !limits.is_empty() {
        lines.push(format!("The service of each run had a cgroup with {}.", limits.join(" and ")));
    }
    lines
}
