//! Where the trial is and how long it will take, on stderr: a bar on a terminal, elsewhere a line per run and phase.

use crate::terminal;
use ebb_report::figures;
use ebb_trial::engine::Event;
use ebb_trial::results::{Outcome, Run};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The bar's own steps; it shows time, which is estimated anew at every phase.
const STEPS: u64 = 1000;

#[derive(Debug, Clone, Copy)]
struct Estimate {
    at: Instant,
    left_s: f64,
    is_whole: bool,
}

pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    estimate: Arc<Mutex<Option<Estimate>>>,
}

impl Progress {
    /// Begins.
    pub fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
        let estimate = Arc::new(Mutex::new(None));
        let (began, shown) = (Instant::now(), estimate.clone());
        let left = move |_: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&left_text(&shown));
        };
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {msg} {left}") {
            bar.set_style(style.with_key("left", left).progress_chars("━╸ "));
        }
        if std::io::stderr().is_terminal() {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Progress { bar, began, estimate }
    }

    /// The workload's setup runs.
    pub fn setup(&self, has_one: bool) {
        if has_one {
            self.say("setting up");
        }
    }

    /// Something happened in the trial.
    pub fn report(&self, event: &Event) {
        match event {
            Event::RunBegins { variant, repetition, number, total } => {
                let of_all = total.map_or(String::new(), |total| format!("/{total}"));
                self.say(&format!("run {number}{of_all}: {variant}, repetition {repetition}"));
            }
            Event::PhaseBegins { phase, round, left_s, left_is_whole } => {
                let estimate = Estimate { at: Instant::now(), left_s: *left_s, is_whole: *left_is_whole };
                *self.estimate.lock().unwrap_or_else(PoisonError::into_inner) = Some(estimate);
                let gone = self.began.elapsed().as_secs_f64();
                self.bar.set_position((STEPS as f64 * gone / (gone + left_s).max(0.001)) as u64);
                let message = self.bar.message();
                let run = message.split(" · ").next().unwrap_or_default();
                let round = if *round > 1 { format!(" {round}") } else { String::new() };
                self.bar.set_message(format!("{run} · {phase}{round}"));
                if self.bar.is_hidden() {
                    terminal::warn(&format!("  {phase}{round} {}", left_text(&self.estimate)));
                }
            }
            Event::LogsMoved { from, to, again } => {
                let again =
                    again.map_or_else(String::new, |variant| format!("; the failed run of {variant} is repeated"));
                self.warn(&format!(
                    "no space left for logs in {}: further logs go to {} until the trial ends{again}",
                    from.display(),
                    to.display()
                ));
            }
            Event::RunEnds { variant, run } => self.say_outcome(variant, run),
        }
    }

    fn say_outcome(&self, variant: &str, run: &Run) {
        match &run.outcome {
            Outcome::Complete | Outcome::Interrupted => {}
            Outcome::Discarded { reason } => self.warn(&format!("{variant}: run discarded: {reason}")),
            Outcome::Failed { reason, last_lines } => {
                self.warn(&format!("{variant}: {reason}; no more runs of this variant"));
                for line in last_lines {
                    self.warn(&format!("| {line}"));
                }
            }
        }
    }

    fn say(&self, text: &str) {
        self.bar.set_message(text.to_owned());
        if self.bar.is_hidden() {
            terminal::warn(text);
        }
    }

    fn warn(&self, line: &str) {
        self.bar.suspend(|| terminal::warn(line));
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The time left now: the estimate minus what has gone by since.
fn left_text(estimate: &Mutex<Option<Estimate>>) -> String {
    let Some(estimate) = *estimate.lock().unwrap_or_else(PoisonError::into_inner) else {
        return String::new();
    };
    let left = estimate.left_s - estimate.at.elapsed().as_secs_f64();
    let more = if estimate.is_whole { "" } else { "more than " };
    format!("· {more}{} left", figures::duration(left))
}
