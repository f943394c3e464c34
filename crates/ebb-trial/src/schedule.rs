//! The order of the phases in a run, and the time that is left.
//!
//! Used by `run`, the engine and the progress line. Pure.

use std::collections::BTreeMap;

/// A phase in the order of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its index in the workload.
    pub phase: usize,
    /// Which time round, from 1.
    pub round: u32,
}

/// What decides how often a phase comes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repetition {
    /// Together with its neighbours of the same cycle.
    pub cycle: Option<String>,
    /// Times in a row.
    pub repeat: u32,
}

/// All steps of a run: neighbours of the same cycle go round together.
pub fn steps(phases: &[Repetition], cycles: &BTreeMap<String, u32>) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut start = 0;
    while start < phases.len() {
        let cycle = phases[start].cycle.as_ref();
        let together = match cycle {
            Some(_) => phases[start..].iter().take_while(|phase| phase.cycle.as_ref() == cycle).count(),
            None => 1,
        };
        let rounds = cycle.and_then(|name| cycles.get(name).copied()).unwrap_or(phases[start].repeat.max(1));
        for round in 1..=rounds {
            steps.extend((start..start + together).map(|phase| Step { phase, round }));
        }
        start += together;
    }
    steps
}

/// How long the phases take, learned while they run: the mean of what was seen so far.
#[derive(Debug, Default)]
pub struct Durations {
    seen: BTreeMap<usize, (f64, u32)>,
    /// From the start of a run to its first phase, and from its last to its end.
    around: (f64, u32),
}

impl Durations {
    /// A phase took this long.
    pub fn saw_phase(&mut self, phase: usize, seconds: f64) {
        let (sum, count) = self.seen.entry(phase).or_default();
        *sum += seconds;
        *count += 1;
    }

    /// The time of a run outside its phases.
    pub fn saw_run(&mut self, seconds: f64) {
        self.around.0 += seconds;
        self.around.1 += 1;
    }

    fn phase(&self, phase: usize) -> Option<f64> {
        self.seen.get(&phase).map(|(sum, count)| sum / f64::from(*count))
    }

    /// Time left; `known` has the length of the idle phases. Second: whether every part of it has been
    /// seen, else it is a lower bound.
    pub fn left(&self, rest_of_run: &[Step], run: &[Step], runs_left: usize, known: &[Option<f64>]) -> (f64, bool) {
        let mut complete = true;
        let mut sum = |steps: &[Step]| -> f64 {
            let lengths = steps.iter().map(|step| known[step.phase].or_else(|| self.phase(step.phase)));
            lengths
                .map(|length| {
                    complete &= length.is_some();
                    length.unwrap_or(0.0)
                })
                .sum()
        };
        let mut left = sum(rest_of_run);
        if runs_left > 0 {
            let around = if self.around.1 > 0 { self.around.0 / f64::from(self.around.1) } else { 0.0 };
            left += (sum(run) + around) * runs_left as f64;
        }
        (left, complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(cycle: Option<&str>, repeat: u32) -> Repetition {
        Repetition { cycle: cycle.map(str::to_owned), repeat }
    }

    #[test]
    fn neighbours_of_a_cycle_go_round_together() {
        let phases = [phase(None, 0), phase(Some("c"), 0), phase(Some("c"), 0), phase(None, 2)];
        let cycles = BTreeMap::from([("c".to_owned(), 2)]);
        let order: Vec<_> = steps(&phases, &cycles).iter().map(|step| (step.phase, step.round)).collect();
        assert_eq!(order, [(0, 1), (1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (3, 2)]);
    }

    #[test]
    fn a_cycle_of_no_rounds_is_left_out() {
        let cycles = BTreeMap::from([("c".to_owned(), 0)]);
        assert_eq!(steps(&[phase(Some("c"), 0), phase(None, 0)], &cycles).len(), 1);
    }

    #[test]
    fn time_left_is_a_lower_bound_until_everything_was_seen() {
        let run = steps(&[phase(None, 0), phase(None, 0)], &BTreeMap::new());
        let known = [None, Some(4.0)];
        let mut durations = Durations::default();
        assert_eq!(durations.left(&run, &run, 1, &known), (8.0, false));
        durations.saw_phase(0, 10.0);
        durations.saw_phase(0, 20.0);
        durations.saw_run(1.0);
        assert_eq!(durations.left(&run[1..], &run, 2, &known), (4.0 + 2.0 * 20.0, true));
    }
}
