//! What else the machine did during a run.
//!
//! Used by `run` at its two ends; the reading comes from outside as [`Machine`]. Pure.

use crate::results::sureness::Disturbance;

/// Counters of a machine at one moment; each counts up from some time in the past.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Machine {
    /// Seconds on any clock that goes on evenly.
    pub at_s: f64,
    /// Processors that are counted.
    pub processors: usize,
    /// Processor time of all programs and of the kernel for them, and time that was stolen from the
    /// machine.
    pub busy_s: f64,
    /// Of that, our own and of all that we have started.
    pub own_s: f64,
    /// Time in which some task waited for memory; absent on kernels that do not count it.
    pub memory_wait_s: Option<f64>,
}

/// Less time between two readings than this tells nothing: the counters go in ticks of 10 ms.
const LEAST_S: f64 = 0.2;
/// Less time under load tells nothing: a tick of each processor and process that is counted late is then a large share.
const LEAST_LOADED_S: f64 = 1.0;

/// What happened from one reading to the next. What could not be read stays absent.
pub fn between(before: Option<Machine>, after: Option<Machine>) -> Disturbance {
    let (Some(before), Some(after)) = (before, after) else {
        return Disturbance::default();
    };
    let time = after.at_s - before.at_s;
    if time < LEAST_S || after.processors == 0 {
        return Disturbance::default();
    }
    let others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s);
    let share = |seconds: f64, of: f64| (seconds / of).clamp(0.0, 1.0);
    Disturbance {
        others_cpu_share: Some(share(others, time * after.processors as f64)),
        memory_pressure_share: Option::zip(before.memory_wait_s, after.memory_wait_s)
            .map(|(before, after)| share(after - before, time)),
    }
}

/// The machine over the phases of a run that have load: the times of a trial are measured there, and a
/// disturbance of that length is a small share of a run with long rests.
#[derive(Debug, Default)]
pub struct LoadPhases {
    sum: Option<Machine>,
}

impl LoadPhases {
    /// Adds a phase, by the readings at its ends.
    pub fn add(&mut self, before: Option<Machine>, after: Option<Machine>) {
        let (Some(before), Some(after)) = (before, after) else {
            return;
        };
        let sum = self.sum.get_or_insert_default();
        sum.at_s += after.at_s - before.at_s;
        sum.processors = after.processors;
        sum.busy_s += after.busy_s - before.busy_s;
        sum.own_s += after.own_s - before.own_s;
    }

    /// What disturbed the whole run, or, where that is more, its phases with load.
    pub fn max_with(&self, whole: Disturbance) -> Disturbance {
        let enough = self.sum.filter(|sum| sum.at_s >= LEAST_LOADED_S);
        let loaded = between(enough.map(|_| Machine::default()), enough);
        let most = |left: Option<f64>, right: Option<f64>| match (left, right) {
            (Some(left), Some(right)) => Some(left.max(right)),
            (left, right) => left.or(right),
        };
        Disturbance { others_cpu_share: most(whole.others_cpu_share, loaded.others_cpu_share), ..whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_s: f64, busy_s: f64, own_s: f64) -> Option<Machine> {
        Some(Machine { at_s, processors: 2, busy_s, own_s, memory_wait_s: None })
    }

    #[test]
    fn what_others_used_is_a_share_of_all_processors() {
        for (what, before, after, share) in [
            ("half", at(100.0, 50.0, 10.0), at(110.0, 65.0, 15.0), Some(0.5)),
            ("our own load", at(0.0, 0.0, 0.0), at(10.0, 19.0, 19.0), Some(0.0)),
            ("ticks of two counters", at(0.0, 0.0, 0.0), at(1.0, 1.0, 1.02), Some(0.0)),
            ("not read", None, at(1.0, 1.0, 1.0), None),
            ("too short", at(1.0, 1.0, 1.0), at(1.1, 1.1, 1.0), None),
        ] {
            let seen = between(before, after);
            assert_eq!(seen.others_cpu_share, share, "{what}");
            assert_eq!((seen.of_times(), seen.memory_pressure_share), (share == Some(0.5), None));
        }
    }

    #[test]
    fn a_disturbance_of_the_load_is_seen_though_the_rests_are_long() {
        let whole = between(at(0.0, 0.0, 0.0), at(100.0, 24.0, 12.0));
        assert!(!whole.of_times(), "6 % of two processors over 100 s");
        let mut loaded = LoadPhases::default();
        assert_eq!(loaded.max_with(whole), whole);
        loaded.add(at(5.0, 1.0, 1.0), at(5.5, 2.0, 1.0));
        assert_eq!(loaded.max_with(whole), whole, "half a second tells nothing");
        let mut loaded = LoadPhases::default();
        // Two phases of 5 s, in which others took 6 s of 10 each.
        loaded.add(at(10.0, 2.0, 1.0), at(15.0, 11.0, 4.0));
        loaded.add(at(60.0, 15.0, 8.0), at(65.0, 24.0, 11.0));
        let seen = loaded.max_with(whole);
        assert_eq!(seen.others_cpu_share, Some(0.6));
        assert!(seen.of_times());
        loaded.add(None, at(1.0, 1.0, 1.0));
        assert_eq!(loaded.max_with(whole), seen);
    }
}
