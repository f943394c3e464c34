//! Rests after bursts of work at which malloc_trim would have returned memory.

use crate::facts::growth::{Point, Rest, Rests};
use crate::findings::LEAST_BYTES;
use crate::next::{argument, quoted, rounded};
use ebb_process::snapshot::{Snapshot, TargetKind};
use ebb_statistics::median;

/// A time in which less than this part of the busiest one's CPU time was used had no load.
pub(super) const IDLE: f64 = 0.25;
/// Less CPU time than this part of a processor is no work.
pub(super) const NO_WORK: f64 = 0.01;
/// A trim is proposed no more often than this, in seconds.
const SHORTEST: f64 = 30.0;

/// The rests with enough to return, and the command; nothing without one.
pub(super) fn of(points: &[Point], last: &Snapshot) -> Option<Rests> {
    let rests = rests(points);
    let bytes: Vec<f64> = rests.iter().map(|rest| rest.trimmable as f64).collect();
    let median_bytes = median(&bytes)? as u64;
    // A command that ebb started has ended by now.
    let next = (last.target.kind != TargetKind::Command).then(|| {
        let distances: Vec<f64> = rests.windows(2).map(|pair| pair[1].at_s - pair[0].at_s).collect();
        // Twice per burst, so that a round soon follows each.
        let every = median(&distances).map(|distance| rounded((distance / 2.0).max(SHORTEST)));
        let every = every.map_or_else(String::new, |every| format!(" --every {}", argument(every)));
        format!("ebb trim {} --inject{every}", quoted(last))
    });
    Some(Rests { rests, median_bytes, next })
}

/// The first look after each burst at which the process was idle, where a trim would have returned memory.
fn rests(points: &[Point]) -> Vec<Rest> {
    let rate = |pair: &[Point]| {
        let seconds = pair[1].at_s - pair[0].at_s;
        (pair[1].cpu_s - pair[0].cpu_s).max(0.0) / seconds.max(f64::MIN_POSITIVE)
    };
    let rates: Vec<f64> = points.windows(2).map(rate).collect();
    let busiest = rates.iter().copied().fold(0.0, f64::max);
    if busiest < NO_WORK {
        return Vec::new();
    }
    let is_busy = |rate: f64| rate >= IDLE * busiest;
    let ends = rates.windows(2).zip(points.iter().skip(2));
    let ends = ends.filter(|(pair, _)| is_busy(pair[0]) && !is_busy(pair[1]));
    let rest = |point: &Point| Some(Rest { at_s: point.at_s, trimmable: point.trimmable? });
    ends.filter_map(|(_, point)| rest(point)).filter(|it| it.trimmable >= LEAST_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::last;
    use super::*;

    const MB: u64 = 1_000_000;

    /// Looks every 10 s: CPU seconds and trimmable MB of each interval's end.
    fn points(looks: &[(f64, Option<u64>)]) -> Vec<Point> {
        let mut cpu_s = 0.0;
        let first = Point::default();
        let looks = looks.iter().enumerate().map(|(at, (cpu, mb))| {
            cpu_s += cpu;
            let at_s = (at + 1) as f64 * 10.0;
            Point { at_s, cpu_s, trimmable: mb.map(|mb| mb * MB), ..Point::default() }
        });
        std::iter::once(first).chain(looks.collect::<Vec<_>>()).collect()
    }

    /// Times and MB of the rests, the median, and the command.
    type Found = (Vec<(u64, u64)>, u64, String);

    fn found(looks: &[(f64, Option<u64>)]) -> Option<Found> {
        let rests = of(&points(looks), &last(None).snapshot)?;
        let each = rests.rests.iter().map(|it| (it.at_s as u64, it.trimmable / MB)).collect();
        Some((each, rests.median_bytes / MB, rests.next.unwrap()))
    }

    #[test]
    fn the_first_idle_look_after_each_burst_counts() {
        let bursts = [
            (0.0, Some(0)),
            (8.0, Some(5)),
            (9.0, Some(5)),
            (0.1, Some(120)),
            (0.0, Some(120)),
            (0.0, Some(120)),
            (7.0, Some(10)),
            (0.0, Some(80)),
        ];
        let expected = (vec![(40, 120), (80, 80)], 100, "ebb trim 7 --inject --every 30s".to_owned());
        assert_eq!(found(&bursts), Some(expected));
        let one = (vec![(20, 50)], 50, "ebb trim 7 --inject".to_owned());
        assert_eq!(found(&[(8.0, Some(0)), (0.0, Some(50))]), Some(one));
    }

    #[test]
    fn without_rest_work_memory_or_knowledge_nothing_is_proposed() {
        for looks in [
            vec![(8.0, Some(100)), (8.0, Some(100)), (8.0, Some(100))],
            vec![(0.01, Some(100)), (0.0, Some(100)), (0.0, Some(100))],
            vec![(8.0, Some(1)), (0.0, Some(15)), (0.0, Some(15))],
            vec![(8.0, None), (0.0, None), (0.0, None)],
        ] {
            assert_eq!(found(&looks), None, "{looks:?}");
        }
    }
}
