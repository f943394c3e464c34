//! All runs of a trial, interleaved: A B C, A B C.
//!
//! Called by `commands/compare`. A variant whose run fails ends there, the others go on; an interrupt
//! ends the trial and keeps what was measured.

use super::run::{self, Prepared, Stage, StepEvent};
use super::schedule::{self, Durations};
use super::summary;
use crate::facts::trial::{Outcome, Run, Variant};
use std::time::Instant;

/// What the engine tells while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// A run begins.
    RunBegins {
        /// The variant.
        variant: &'a str,
        /// From 1.
        repetition: u32,
        /// Which run of the trial, from 1.
        number: usize,
        /// Runs of the trial, those of variants that ended early not counted.
        total: usize,
    },
    /// A phase begins.
    PhaseBegins {
        /// Its name.
        phase: &'a str,
        /// Which time round, from 1.
        round: u32,
        /// Time left in the trial.
        left_s: f64,
        /// Whether that is the whole time, else it is a lower bound.
        left_is_whole: bool,
    },
    /// A run ended.
    RunEnds {
        /// The variant.
        variant: &'a str,
        /// The run.
        run: &'a Run,
    },
}

/// Does all runs and fills in the summaries.
pub fn conduct(
    stage: &Stage,
    variants: Vec<Prepared>,
    repetitions: u32,
    tell: &mut dyn FnMut(Event),
) -> Vec<Variant> {
    let mut results: Vec<Variant> = variants.iter().map(empty).collect();
    let mut durations = Durations::default();
    let values = stage.workload.vars();
    let known: Vec<Option<f64>> = stage
        .workload
        .phases
        .iter()
        .map(|phase| phase.idle_seconds(&values).ok().flatten())
        .collect();
    let mut plan = schedule::interleave(variants.len(), repetitions);
    plan.retain(|(variant, _)| variants[*variant].unavailable.is_none());
    let mut done = 0;
    while done < plan.len() && !stage.interrupt.is_set() {
        let (index, repetition) = plan[done];
        let variant = &variants[index];
        let name = variant.spec.name.as_str();
        tell(Event::RunBegins {
            variant: name,
            repetition,
            number: done + 1,
            total: plan.len(),
        });
        let runs_left = plan.len() - done - 1;
        let (started, mut in_phases) = (Instant::now(), 0.0);
        let mut on_step = |event: StepEvent| match event {
            StepEvent::Begins(at) => {
                let step = stage.steps[at];
                let (left_s, left_is_whole) =
                    durations.left(&stage.steps[at..], stage.steps, runs_left, &known);
                tell(Event::PhaseBegins {
                    phase: &stage.workload.phases[step.phase].name,
                    round: step.round,
                    left_s,
                    left_is_whole,
                });
            }
            StepEvent::Took(at, seconds) => {
                in_phases += seconds;
                durations.saw_phase(stage.steps[at].phase, seconds);
            }
        };
        let run = run::run(stage, variant, repetition, &mut on_step);
        tell(Event::RunEnds {
            variant: name,
            run: &run,
        });
        match run.outcome {
            Outcome::Complete => durations.saw_run(started.elapsed().as_secs_f64() - in_phases),
            Outcome::Failed { .. } => {
                // The variant ends here; what is behind `done` in the plan is still to come.
                let mut at = 0;
                plan.retain(|(other, _)| {
                    at += 1;
                    at <= done + 1 || *other != index
                });
            }
            Outcome::Discarded { .. } | Outcome::Interrupted => {}
        }
        results[index].runs.push(run);
        done += 1;
    }
    summary::summarise(&mut results);
    results
}

fn empty(variant: &Prepared) -> Variant {
    Variant {
        name: variant.spec.name.clone(),
        allocator: variant.spec.allocator.clone(),
        library: variant.library.clone(),
        env: variant.spec.env.clone(),
        unavailable: variant.unavailable.clone(),
        runs: Vec::new(),
        summary: None,
    }
}
