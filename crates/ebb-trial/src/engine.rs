//! All runs of a trial, interleaved: A B C, A B C.
//!
//! Called by `commands/compare`. A variant whose run fails ends there, the others go on; an interrupt
//! ends the trial and keeps what was measured.

use super::rounds::{Progress, Rounds};
use super::run::{self, StepEvent, TrialContext};
use super::schedule::Durations;
use super::summary;
use super::variant::Prepared;
use crate::results::sureness::{StopReason, Stopping};
use crate::results::{Outcome, Run, Variant};
use std::path::Path;
use std::time::{Duration, Instant};

/// Said of the run during which the disk of the logs became full.
const FULL: &str = "the disk was full: logs are incomplete";

/// Progress of a trial.
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
        /// Runs of the trial, those of variants that ended early not counted; not known of a trial that
        /// goes on until it is sure.
        total: Option<usize>,
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
    /// The disk of the logs is full: those of further runs go elsewhere, and this run is done again if it failed.
    LogsMoved {
        /// The folder that is left.
        from: &'a Path,
        /// The folder for the rest of the trial.
        to: &'a Path,
        /// The variant whose run is done again.
        again: Option<&'a str>,
    },
    /// A run ended.
    RunEnds {
        /// The variant.
        variant: &'a str,
        /// The run.
        run: &'a Run,
    },
}

/// The results of all runs.
#[derive(Debug)]
pub struct TrialRuns {
    /// The variants with their runs and summaries.
    pub variants: Vec<Variant>,
    /// How it stopped, where that was not known before.
    pub stopping: Option<Stopping>,
    /// Rounds that were begun.
    pub repetitions: u32,
}

/// Does all runs and fills in the summaries.
pub fn run_all(
    trial: &TrialContext,
    variants: Vec<Prepared>,
    rounds: Rounds,
    on_event: &mut dyn FnMut(Event),
) -> TrialRuns {
    let mut results: Vec<Variant> = variants.iter().map(empty).collect();
    let mut running: Vec<bool> = variants.iter().map(|it| it.unavailable.is_none()).collect();
    let mut clock = Clock::of(trial);
    let (started, mut longest) = (Instant::now(), Duration::ZERO);
    let (mut done, mut number) = (0, 0);
    let end = loop {
        summary::summarise(&mut results);
        let progress = Progress { variants: &results, running: &running, done, elapsed: started.elapsed(), longest };
        let interrupted = trial.interrupt.is_set().then_some(Err(Some(StopReason::Interrupted)));
        if let Err(end) = interrupted.unwrap_or_else(|| rounds.next(&progress)) {
            let Rounds::UntilSure(sure) = rounds else {
                break None;
            };
            break end.map(|end| sure.stopping(&progress, end));
        }
        let round = Instant::now();
        done += 1;
        for (index, variant) in variants.iter().enumerate() {
            if !running[index] || trial.interrupt.is_set() {
                continue;
            }
            number += 1;
            let alive = |from: usize| running[from..].iter().filter(|runs| **runs).count();
            let rounds_left = rounds.known().map(|known| (known - done) as usize);
            let left = alive(index) - 1 + rounds_left.unwrap_or(0) * alive(0);
            let name = variant.spec.name.as_str();
            on_event(Event::RunBegins {
                variant: name,
                repetition: done,
                number,
                total: rounds_left.map(|_| number + left),
            });
            clock.is_whole = rounds_left.is_some();
            let mut run = clock.run(trial, variant, done, left, on_event);
            let logs = trial.logs.folder();
            if trial.logs.leave_full_disk() {
                let again = has_failed(&run) && !trial.interrupt.is_set();
                on_event(Event::LogsMoved { from: logs, to: trial.logs.folder(), again: again.then_some(name) });
                if again {
                    run = clock.run(trial, variant, done, left, on_event);
                }
                run::note(&mut run, FULL.to_owned());
            }
            on_event(Event::RunEnds { variant: name, run: &run });
            // A variant whose run fails ends here. A limit that was reached is a result, and how soon it is reached the
            // next time is one as well; only rounds without a number would wait for it for ever.
            let met_limit = run.oom.is_some() && rounds.known().is_some();
            running[index] = met_limit || !has_failed(&run);
            results[index].runs.push(run);
        }
        longest = longest.max(round.elapsed());
    };
    TrialRuns { variants: results, stopping: end, repetitions: rounds.known().unwrap_or(done) }
}

/// Estimates the time that is left from the runs and phases so far.
struct Clock {
    durations: Durations,
    /// Lengths of the idle phases.
    known: Vec<Option<f64>>,
    /// Whether the number of runs that are left is known.
    is_whole: bool,
}

impl Clock {
    fn of(trial: &TrialContext) -> Clock {
        let values = trial.workload.vars();
        let phases = trial.workload.phases.iter();
        Clock {
            durations: Durations::default(),
            known: phases.map(|phase| phase.idle_seconds(&values).ok().flatten()).collect(),
            is_whole: true,
        }
    }

    /// One run. Each phase is reported with the time that is left.
    fn run(
        &mut self,
        trial: &TrialContext,
        variant: &Prepared,
        repetition: u32,
        runs_left: usize,
        on_event: &mut dyn FnMut(Event),
    ) -> Run {
        let (started, mut in_phases) = (Instant::now(), 0.0);
        let mut on_step = |event: StepEvent| match event {
            StepEvent::Begins(at) => {
                let step = trial.steps[at];
                let (left_s, seen_all) = self.durations.left(&trial.steps[at..], trial.steps, runs_left, &self.known);
                on_event(Event::PhaseBegins {
                    phase: &trial.workload.phases[step.phase].name,
                    round: step.round,
                    left_s,
                    left_is_whole: seen_all && self.is_whole,
                });
            }
            StepEvent::Took(at, seconds) => {
                in_phases += seconds;
                self.durations.saw_phase(trial.steps[at].phase, seconds);
            }
        };
        let run = run::run(trial, variant, repetition, &mut on_step);
        if run.outcome == Outcome::Complete {
            self.durations.saw_run(started.elapsed().as_secs_f64() - in_phases);
        }
        run
    }
}

fn has_failed(run: &Run) -> bool {
    matches!(run.outcome, Outcome::Failed { .. })
}

fn empty(variant: &Prepared) -> Variant {
    let spec = &variant.spec;
    Variant {
        linked: spec.linked,
        command: spec.command.clone(),
        library: variant.library.clone(),
        beside: variant.beside.clone(),
        env: spec.env.clone(),
        trim_once: spec.trim_once,
        decay: variant.decay,
        unavailable: variant.unavailable.clone(),
        ..Variant::new(&spec.name, &spec.allocator)
    }
}
