//! Which process is looked at next within a share of one core, and why one is not. Pure: time, processor time and pressure are
//! arguments.
//!
//! Credit grows with time and shrinks with all processor time of this process, so the ticks are paid as well. The process with the most
//! unexplained bytes is next; where credit does not reach, all wait, so that small ones do not keep a large one out for ever.

use std::time::Duration;

/// A process is not looked at again within this time unless its memory moved.
const AGAIN_AFTER: Duration = Duration::from_secs(600);
/// Nor within this time at all.
const LEAST_BETWEEN: Duration = Duration::from_secs(30);
/// It moved if it changed by this part, and by so many bytes.
const MOVED: f64 = 0.05;
const MOVED_BYTES: u64 = 8 << 20;
/// Less resident memory is not worth a look: what a small shell has.
const LEAST_BYTES: u64 = 4 << 20;
/// The most credit that is saved, in time. A start has it too, so that the figures are back soon after one.
const MOST_CREDIT: Duration = Duration::from_secs(600);
/// A look that takes the budget of a longer time is not begun.
const MOST_OF_ONE: Duration = Duration::from_secs(3600);
/// Processor time of a look before one was measured: 5 ms, and 20 ms for each GiB (a heap of glibc with small blocks takes more).
const FIRST_COST_S: f64 = 0.005;
const FIRST_COST_S_PER_BYTE: f64 = 0.02 / (1u64 << 30) as f64;
/// Above this share of the last ten seconds in which a task waited for memory, the machine is short of it.
const PRESSURE: f64 = 0.1;

/// What clocks say at the time of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clock {
    /// A clock that only goes forward.
    pub at: Duration,
    /// Processor time that this process has used.
    pub cpu: Duration,
    /// Share of the last ten seconds in which some task waited for memory, 0 to 1; absent where the kernel does not tell.
    pub memory_wait: Option<f64>,
}

/// A process and its start, which tells it from a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its number.
    pub pid: i32,
    /// Clock ticks since boot.
    pub started_ticks: u64,
}

/// Why a process that was due was not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Skip {
    /// The budget is used up.
    Budget,
    /// The machine is short of memory.
    Pressure,
    /// The kernel refused.
    NoRight,
    /// It ended meanwhile.
    Gone,
    /// A look at it would take too much time or memory.
    TooLarge,
    /// A page or a file of it did not answer.
    Stuck,
}

impl Skip {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Budget, Self::Pressure, Self::NoRight, Self::Gone, Self::TooLarge, Self::Stuck];

    /// A word for a label.
    pub fn word(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::Pressure => "pressure",
            Self::NoRight => "no_right",
            Self::Gone => "gone",
            Self::TooLarge => "too_large",
            Self::Stuck => "stuck",
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look at this process.
    Look(Key),
    /// One is due, and has to wait.
    Wait(Skip),
    /// None is due.
    Idle,
}

/// A process as the schedule sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) key: Key,
    pub(crate) rss: u64,
    /// When the last attempt was, the memory then, and what it cost.
    pub(crate) last: Option<(Duration, u64, Duration)>,
}

/// Credit, and what looks have cost so far.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    share: f64,
    last: Option<Clock>,
    credit_s: f64,
    /// Processor time of a look for each byte that is resident, as measured.
    s_per_byte: f64,
}

impl Schedule {
    /// `share` of one core.
    pub(crate) fn new(share: f64) -> Self {
        let credit_s = share * MOST_CREDIT.as_secs_f64();
        Self { share, last: None, credit_s, s_per_byte: FIRST_COST_S_PER_BYTE }
    }

    /// Brings the credit up to date.
    pub(crate) fn advance(&mut self, now: &Clock) {
        if let Some(last) = self.last {
            let earned = self.share * now.at.saturating_sub(last.at).as_secs_f64();
            self.credit_s += earned - now.cpu.saturating_sub(last.cpu).as_secs_f64();
            self.credit_s = self.credit_s.min(self.share * MOST_CREDIT.as_secs_f64());
        }
        self.last = Some(*now);
    }

    pub(crate) fn learn(&mut self, rss: u64, cost: Duration) {
        let rate = (cost.as_secs_f64() - FIRST_COST_S).max(0.0) / rss.max(LEAST_BYTES) as f64;
        self.s_per_byte += 0.2 * (rate - self.s_per_byte);
    }

    /// The next process, and processes that are too large.
    pub(crate) fn pick(&self, candidates: impl Iterator<Item = Candidate>, now: &Clock) -> (Next, Vec<Key>) {
        let mut due: Vec<(u64, Candidate)> =
            candidates.filter_map(|it| Some((unexplained(&it, now.at)?, it))).collect();
        due.sort_by_key(|(bytes, candidate)| (std::cmp::Reverse(*bytes), candidate.key));
        if due.is_empty() {
            return (Next::Idle, Vec::new());
        }
        if now.memory_wait.is_some_and(|wait| wait > PRESSURE) {
            return (Next::Wait(Skip::Pressure), Vec::new());
        }
        let full = self.credit_s >= 0.99 * self.share * MOST_CREDIT.as_secs_f64();
        let mut too_large = Vec::new();
        for (_, candidate) in due {
            let cost_s = self.cost_s(&candidate);
            if cost_s > self.share * MOST_OF_ONE.as_secs_f64() {
                too_large.push(candidate.key);
            } else if cost_s <= self.credit_s || full {
                return (Next::Look(candidate.key), too_large);
            } else {
                return (Next::Wait(Skip::Budget), too_large);
            }
        }
        (Next::Idle, too_large)
    }

    fn cost_s(&self, candidate: &Candidate) -> f64 {
        match candidate.last {
            // What failed at once may take longer next time.
            Some((_, _, cost)) => cost.as_secs_f64().max(FIRST_COST_S),
            None => FIRST_COST_S + self.s_per_byte * candidate.rss as f64,
        }
    }
}

/// Bytes that a look would explain; nothing where none is due.
fn unexplained(candidate: &Candidate, now: Duration) -> Option<u64> {
    let Some((at, then, _)) = candidate.last else {
        return (candidate.rss >= LEAST_BYTES).then_some(candidate.rss);
    };
    let age = now.saturating_sub(at);
    let moved = candidate.rss.abs_diff(then);
    let has_moved = moved >= MOVED_BYTES && moved as f64 > MOVED * then as f64;
    if has_moved && age >= LEAST_BETWEEN {
        Some(moved)
    } else {
        // What changed within the heap is not known; it counts as little.
        (age >= AGAIN_AFTER && candidate.rss >= LEAST_BYTES).then_some(candidate.rss / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(seconds: u64, cpu_ms: u64) -> Clock {
        let (at, cpu) = (Duration::from_secs(seconds), Duration::from_millis(cpu_ms));
        Clock { at, cpu, memory_wait: Some(0.0) }
    }

    fn candidate(pid: i32, mib: u64, last: Option<(u64, u64, u64)>) -> Candidate {
        let last = last.map(|(at_s, mib, ms)| (Duration::from_secs(at_s), mib * MIB, Duration::from_millis(ms)));
        Candidate { key: Key { pid, started_ticks: 1 }, rss: mib * MIB, last }
    }

    fn pick(schedule: &Schedule, candidates: &[Candidate], now: &Clock) -> (Next, Vec<i32>) {
        let (next, too_large) = schedule.pick(candidates.iter().copied(), now);
        (next, too_large.iter().map(|key| key.pid).collect())
    }

    #[test]
    fn the_largest_unexplained_is_first_and_none_is_due_twice_in_ten_minutes_unless_it_moved() {
        let schedule = Schedule::new(0.5);
        let look = |pid| (Next::Look(Key { pid, started_ticks: 1 }), Vec::new());
        let new = [candidate(1, 100, None), candidate(2, 300, None), candidate(3, 3, None)];
        assert_eq!(pick(&schedule, &new, &at(0, 0)), look(2));
        let seen = [candidate(1, 100, Some((0, 100, 5))), candidate(2, 320, Some((0, 300, 5)))];
        assert_eq!(pick(&schedule, &seen[..1], &at(599, 0)), (Next::Idle, Vec::new()));
        assert_eq!(pick(&schedule, &seen, &at(29, 0)), (Next::Idle, Vec::new()));
        assert_eq!(pick(&schedule, &seen, &at(30, 0)), look(2), "it moved by 20 of 300 MiB");
        assert_eq!(pick(&schedule, &seen[..1], &at(600, 0)), look(1));
    }

    #[test]
    fn looks_and_ticks_together_stay_within_the_budget() {
        let share = 0.005;
        let mut schedule = Schedule::new(share);
        let (mut cpu_ms, mut looks) = (0, 0);
        let mut last = vec![None; 200];
        for second in (0..36_000).step_by(15) {
            // A tick.
            cpu_ms += 20;
            loop {
                let now = at(second, cpu_ms);
                schedule.advance(&now);
                let all = (1..).zip(&last).map(|(pid, last)| candidate(pid, 200, *last));
                let Next::Look(key) = schedule.pick(all, &now).0 else { break };
                cpu_ms += 30;
                looks += 1;
                last[key.pid as usize - 1] = Some((second, 200, 30));
            }
        }
        let spent = cpu_ms as f64 / 1e3 / 36_000.0;
        assert!((0.9 * share..1.03 * share).contains(&spent), "{spent}");
        assert!(last.iter().all(Option::is_some), "{looks} looks");
    }

    #[test]
    fn a_machine_short_of_memory_or_budget_waits_and_says_why() {
        let mut schedule = Schedule::new(0.005);
        let one = [candidate(1, 100, Some((0, 10, 5)))];
        let short = Clock { memory_wait: Some(0.5), ..at(100, 0) };
        assert_eq!(pick(&schedule, &one, &short).0, Next::Wait(Skip::Pressure));
        schedule.advance(&at(0, 0));
        schedule.advance(&at(100, 5_000));
        assert_eq!(pick(&schedule, &one, &at(100, 5_000)).0, Next::Wait(Skip::Budget));
        // With what is saved at most, the large one gets its turn, unless it takes an hour's budget.
        schedule.advance(&at(2_000, 5_000));
        let large = [candidate(1, 100_000, Some((0, 100, 10_000)))];
        assert!(matches!(pick(&schedule, &large, &at(2_000, 5_000)).0, Next::Look(_)));
        let huge = [candidate(2, 100_000, Some((0, 100, 20_000))), one[0]];
        let (next, too_large) = pick(&schedule, &huge, &at(2_000, 5_000));
        assert!(matches!(next, Next::Look(key) if key.pid == 1));
        assert_eq!(too_large, [2]);
    }
}
