//! What has to be said beside the tables: what did not run, what does not count, what broke.
//!
//! Used by all three renderings. Nothing that was asked for is ever missing without a note.

use super::figures;
use crate::facts::trial::{Outcome, Run, Trial, Variant};

/// One thing to say.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// The variant it is about; empty for the whole trial.
    pub about: String,
    /// What happened.
    pub text: String,
    /// The last lines of what failed.
    pub lines: Vec<String>,
}

/// All notes of a trial, in the order of the variants.
pub fn of(trial: &Trial) -> Vec<Note> {
    let mut notes = Vec::new();
    if trial.interrupted {
        notes.push(Note {
            about: String::new(),
            text: "interrupted: what was measured until then is kept, runs that were not finished do not count".into(),
            lines: Vec::new(),
        });
    }
    for variant in &trial.variants {
        notes.extend(about_variant(variant, trial.repetitions));
    }
    notes
}

fn about_variant(variant: &Variant, repetitions: u32) -> Vec<Note> {
    let note = |text: String, lines: &[String]| Note {
        about: variant.name.clone(),
        text,
        lines: lines.to_vec(),
    };
    if let Some(reason) = &variant.unavailable {
        return vec![note(format!("not run: {reason}"), &[])];
    }
    let mut notes: Vec<Note> = Vec::new();
    for run in &variant.runs {
        match &run.outcome {
            Outcome::Complete => {}
            Outcome::Discarded { reason } => {
                notes.push(note(
                    format!("run {} discarded: {reason}", run.repetition),
                    &[],
                ));
            }
            Outcome::Failed { reason, last_lines } => {
                notes.push(note(
                    format!("run {} failed: {reason}", run.repetition),
                    last_lines,
                ));
            }
            Outcome::Interrupted => {
                notes.push(note(format!("run {} was interrupted", run.repetition), &[]))
            }
        }
        for text in &run.notes {
            // The same remark in every repetition is one remark.
            if !notes.iter().any(|note| note.text == *text) {
                notes.push(note(text.clone(), &[]));
            }
        }
    }
    let errors = variant.summary.as_ref().map_or(0, |summary| summary.errors);
    if errors > 0 {
        notes.push(note(format!("{errors} requests failed under load"), &[]));
    }
    let complete = variant.complete().count() as u32;
    if complete > 0 && complete < repetitions {
        notes.push(note(format!("{complete} of {repetitions} runs count"), &[]));
    }
    notes
}

/// How and where it was measured, in one line each.
pub fn method(trial: &Trial) -> Vec<String> {
    let machine = &trial.machine;
    let mut place: Vec<String> = Vec::new();
    place.extend(machine.cpu.clone());
    place.extend(
        machine
            .processors
            .map(|count| format!("{count} processors")),
    );
    place.extend(machine.memory_bytes.map(figures::gigabytes));
    place.extend(machine.system.clone());
    place.extend(
        machine
            .kernel
            .as_ref()
            .map(|kernel| format!("kernel {kernel}")),
    );
    place.extend(
        machine
            .thp
            .as_ref()
            .map(|thp| format!("transparent huge pages: {thp}")),
    );
    let profile = trial
        .workload
        .profile
        .as_ref()
        .map_or(String::new(), |profile| format!(", profile {profile}"));
    let runs: Vec<&Run> = trial
        .variants
        .iter()
        .flat_map(|variant| &variant.runs)
        .collect();
    vec![
        format!(
            "Workload: {}{profile}. {}",
            trial.workload.name, trial.workload.description
        ),
        format!(
            "{} runs in {}, variants interleaved, {} repetition{} asked for; the process tree was sampled every {} ms from readiness to the end.",
            runs.len(),
            figures::duration(trial.seconds),
            trial.repetitions,
            if trial.repetitions == 1 { "" } else { "s" },
            trial.interval_ms
        ),
        format!("Machine: {}.", place.join(", ")),
        format!("Started {} with ebb {}.", trial.started, trial.ebb_version),
    ]
}
