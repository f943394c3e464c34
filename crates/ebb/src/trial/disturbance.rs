//! What the machine did beside a run.
//!
//! Used by `run` at its two ends; the reading comes from outside as [`Machine`]. Pure.

use crate::facts::sureness::Disturbance;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_s: f64, busy_s: f64, own_s: f64) -> Option<Machine> {
        Some(Machine {
            at_s,
            processors: 2,
            busy_s,
            own_s,
            memory_wait_s: None,
        })
    }

    #[test]
    fn what_others_used_is_a_share_of_all_processors() {
        let seen = between(at(100.0, 50.0, 10.0), at(110.0, 65.0, 15.0));
        assert_eq!(seen.others_cpu_share, Some(0.5));
        assert!(seen.of_times());
        assert_eq!(seen.memory_pressure_share, None);
    }

    #[test]
    fn our_own_load_is_no_disturbance() {
        let seen = between(at(0.0, 0.0, 0.0), at(10.0, 19.0, 18.9));
        assert!(seen.others_cpu_share.unwrap() < 0.01 && !seen.of_times());
        // Ticks of two counters do not fall together.
        assert_eq!(
            between(at(0.0, 0.0, 0.0), at(1.0, 1.0, 1.02)).others_cpu_share,
            Some(0.0)
        );
    }

    #[test]
    fn what_was_not_read_stays_absent() {
        assert_eq!(between(None, at(1.0, 1.0, 1.0)), Disturbance::default());
        assert_eq!(
            between(at(1.0, 1.0, 1.0), at(1.1, 1.1, 1.0)),
            Disturbance::default()
        );
    }
}
