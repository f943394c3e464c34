//! Steps of the floor during a watch without an end: what happened before each, and how often. Its memory is bounded.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use ebb_diagnosis::facts::diagnosis::Diagnosis;
use ebb_diagnosis::facts::growth::{Event, FloorStep};
use ebb_diagnosis::growth::causes::Standing;
use ebb_diagnosis::growth::{point, steps};
use ebb_report::figures::{cause_lines, step_at};
use ebb_report::metrics::FloorSteps;
use ebb_statistics::steps::Monitor;

/// So many of each are kept, the newest.
const KEPT_EVENTS: usize = 2000;
const KEPT_STEPS: usize = 500;

/// What is known so far.
#[derive(Debug)]
pub struct Steps {
    monitor: Monitor,
    /// The first look, in seconds of the monotonic clock.
    start_s: Option<f64>,
    looks: usize,
    standing: Standing,
    events: VecDeque<Event>,
    steps: VecDeque<FloorStep>,
    /// For the metrics.
    pub figures: FloorSteps,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            monitor: steps::monitor(),
            start_s: None,
            looks: 0,
            standing: Standing::default(),
            events: VecDeque::new(),
            steps: VecDeque::new(),
            figures: FloorSteps::default(),
        }
    }
}

impl Steps {
    /// Adds a look; returns a line for each step that is certain since.
    pub fn look(&mut self, diagnosis: &Diagnosis) -> Vec<String> {
        let snapshot = &diagnosis.snapshot;
        if snapshot.processes.is_empty() {
            // It is restarting.
            return Vec::new();
        }
        let start_s = *self.start_s.get_or_insert(snapshot.at_s);
        let point = point(diagnosis, start_s);
        self.looks += 1;
        for event in self.standing.follow(Standing::of(snapshot), point.at_s) {
            if self.events.len() == KEPT_EVENTS {
                self.events.pop_front();
            }
            self.events.push_back(event);
        }
        let found = self.monitor.add(point.at_s, point.total as f64);
        let found: Vec<f64> = found.into_iter().map(|step| self.keep(step, point.at_s)).collect();
        if found.is_empty() { Vec::new() } else { self.lines(&found, point.at_s) }
    }

    /// Keeps a step, and returns its time.
    fn keep(&mut self, step: ebb_statistics::steps::Step, now_s: f64) -> f64 {
        let step = steps::floor_step(step);
        let at_s = step.at_s;
        if step.bytes > 0 {
            self.figures.up += 1
        } else {
            self.figures.down += 1
        }
        self.figures.last = Some((since_1970(now_s - at_s), step.bytes));
        if self.steps.len() == KEPT_STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back(step);
        at_s
    }

    /// The steps at these times with the events before them, then the kinds of event that rises follow.
    fn lines(&self, found: &[f64], now_s: f64) -> Vec<String> {
        // Older steps may have lost their events.
        let events_are_full = self.events.len() == KEPT_EVENTS;
        let from_s = self.events.front().filter(|_| events_are_full).map_or(0.0, |it| it.at_s);
        let mut steps: Vec<FloorStep> = self.steps.iter().filter(|it| it.at_s >= from_s).cloned().collect();
        steps.iter_mut().for_each(|step| step.at_s -= from_s);
        let events: Vec<Event> =
            self.events.iter().map(|event| Event { at_s: event.at_s - from_s, label: event.label.clone() }).collect();
        let span = now_s - from_s;
        let looks = (self.looks as f64 * span / now_s) as usize;
        let kinds = steps::line_up(&mut steps, span, looks, &events);
        let is_found = |step: &&FloorStep| found.iter().any(|at_s| (at_s - from_s - step.at_s).abs() < 1e-3);
        let line = |step: &FloorStep| {
            let when = since_1970(span - step.at_s).max(0.0);
            let when = UNIX_EPOCH + std::time::Duration::from_secs_f64(when);
            step_at(step, &humantime::format_rfc3339_seconds(when).to_string())
        };
        steps.iter().filter(is_found).map(line).chain(cause_lines(&kinds)).collect()
    }
}

fn since_1970(ago_s: f64) -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64()) - ago_s
}
