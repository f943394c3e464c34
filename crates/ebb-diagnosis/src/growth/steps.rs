//! Steps of the floor of all memory, and the events that they follow. Used by `ebb why --watch`, `ebb watch` and
//! `ebb compare --live`.

use std::collections::BTreeMap;

use crate::facts::growth::{Event, EventKind, FloorStep, Growth, Point};
use ebb_statistics::steps::{self, Monitor};

/// A smaller step is no reason to look for a cause.
const LEAST_STEP: f64 = 500_000.0;
/// A step follows an event for this long.
const AFTER_S: f64 = 120.0;
/// And for this many looks.
const AFTER_LOOKS: f64 = 2.0;
/// More labels are not listed at one step.
const MOST_LABELS: usize = 5;
/// The probability at which many rises after one kind of event are no chance.
const CHANCE: f64 = 0.05;

pub(super) fn of(points: &[Point]) -> Vec<FloorStep> {
    let total: Vec<(f64, f64)> = points.iter().map(|point| (point.at_s, point.total as f64)).collect();
    of_series(&total)
}

/// The steps of the floor of a series, in bytes at seconds since its first look.
pub fn of_series(points: &[(f64, f64)]) -> Vec<FloorStep> {
    steps::steps(points, LEAST_STEP).into_iter().map(floor_step).collect()
}

/// Finds them in a series that never ends.
pub fn monitor() -> Monitor {
    Monitor::new(LEAST_STEP)
}

/// A step before its events are known.
pub fn floor_step(step: steps::Step) -> FloorStep {
    FloorStep {
        at_s: step.at,
        bytes: step.change as i64,
        low: step.low as i64,
        high: step.high as i64,
        events: Vec::new(),
    }
}

/// Lists the events before each step, and the kinds of event that rises follow.
pub fn explain(growth: &mut Growth, events: &[Event]) {
    let span = growth.points.last().map_or(0.0, |point| point.at_s);
    growth.events = line_up(&mut growth.steps, span, growth.points.len(), events);
}

/// Adds to each step the events before it. Returns the kinds of event that rises follow. All lie in `0..span`, in
/// which there were so many looks.
pub fn line_up(steps: &mut [FloorStep], span: f64, looks: usize, events: &[Event]) -> Vec<EventKind> {
    if span <= 0.0 || looks < 2 {
        return Vec::new();
    }
    let look = span / (looks - 1) as f64;
    let after = AFTER_S.max(AFTER_LOOKS * look);
    // A step is dated by the first look that shows it, so its event comes before that look.
    let precedes = |event_s: f64, step_s: f64| (step_s - after..=step_s).contains(&event_s);
    let mut kinds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for event in events.iter().filter(|event| (0.0..=span).contains(&event.at_s)) {
        kinds.entry(&event.label).or_default().push(event.at_s);
    }
    for step in steps.iter_mut() {
        // The latest event of each kind, the nearest to the step first.
        let nearest =
            |times: &[f64]| times.iter().copied().filter(|&at| precedes(at, step.at_s)).max_by(f64::total_cmp);
        let mut near: Vec<(f64, &str)> =
            kinds.iter().filter_map(|(label, times)| Some((nearest(times)?, *label))).collect();
        near.sort_by(|left, right| right.0.total_cmp(&left.0));
        step.events = near.into_iter().take(MOST_LABELS).map(|(_, label)| label.to_owned()).collect();
    }
    let rises: Vec<f64> = steps.iter().filter(|step| step.bytes > 0).map(|step| step.at_s).collect();
    let mut found: Vec<(f64, EventKind)> = kinds
        .iter()
        .map(|(label, times)| {
            let followed = rises.iter().filter(|&&rise| times.iter().any(|&at| precedes(at, rise))).count();
            let share = covered(times, after, span) / span;
            let chance = at_least(followed, rises.len(), share) * kinds.len() as f64;
            let kind = EventKind {
                label: (*label).to_owned(),
                count: times.len(),
                rises: followed,
                expected: share * rises.len() as f64,
                more_than_chance: chance < CHANCE,
            };
            (chance, kind)
        })
        .filter(|(_, kind)| kind.rises > 0)
        .collect();
    found.sort_by(|left, right| left.0.total_cmp(&right.0));
    found.into_iter().map(|(_, kind)| kind).collect()
}

/// How much of `0..span` lies within `after` of one of `times`.
fn covered(times: &[f64], after: f64, span: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut end = 0.0_f64;
    let mut sum = 0.0;
    for at in sorted {
        let until = (at + after).min(span);
        sum += (until - at.max(end)).max(0.0);
        end = end.max(until);
    }
    sum
}

/// The probability of at least `hits` of `tries`, each with probability `each` (the upper tail of the binomial
/// distribution).
fn at_least(hits: usize, tries: usize, each: f64) -> f64 {
    let mut sum = 0.0;
    let mut ways = 1.0;
    for count in 0..=tries {
        if count >= hits {
            sum += ways * each.powi(count as i32) * (1.0 - each).powi((tries - count) as i32);
        }
        ways *= (tries - count) as f64 / (count + 1) as f64;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::tests::{heap, last};
    use super::*;

    /// Two hours, a look every 15 s; the floor rises by 5 MB at each of `rises`.
    fn watched(rises: &[f64]) -> Growth {
        let mut random = fastrand::Rng::with_seed(5);
        let points = (0..480).map(|look| {
            let at_s = f64::from(look) * 15.0;
            let count = rises.iter().filter(|&&rise| at_s >= rise).count();
            let live = 100.0 + 5.0 * count as f64 + 0.3 * random.f64();
            Point { at_s, ..heap(live, 1.0, at_s) }
        });
        crate::growth::of(points.collect(), last(None))
    }

    fn event(at_s: f64, label: &str) -> Event {
        Event { at_s, label: label.to_owned() }
    }

    #[test]
    fn rises_are_lined_up_with_what_happened() {
        let rises = [1200.0, 2700.0, 4200.0, 5700.0];
        let mut growth = watched(&rises);
        let at: Vec<f64> = growth.steps.iter().map(|step| step.at_s).collect();
        assert_eq!(at, rises);
        for step in &growth.steps {
            assert!(step.low <= 5_000_000 && step.high >= 4_900_000, "{step:?}");
        }
        let mut events: Vec<Event> = rises.iter().map(|rise| event(rise - 20.0, "POST /export")).collect();
        events.extend((0..7200).step_by(10).map(|at| event(f64::from(at), "GET /")));
        events.extend([event(1190.0, "deploy"), event(3333.0, "POST /export"), event(-5.0, "early")]);
        explain(&mut growth, &events);
        assert_eq!(growth.steps[0].events, ["GET /", "deploy", "POST /export"]);
        assert_eq!(growth.steps[1].events, ["GET /", "POST /export"]);
        let export = &growth.events[0];
        assert_eq!((&*export.label, export.count, export.rises), ("POST /export", 5, 4));
        assert!(export.more_than_chance && export.expected < 0.4, "{export:?}");
        // Requests that never stop come before every rise, and explain none.
        let others = growth.events[1..].iter();
        assert!(others.clone().all(|kind| !kind.more_than_chance), "{:?}", growth.events);
        assert_eq!(others.map(|kind| &*kind.label).collect::<Vec<_>>(), ["deploy", "GET /"]);
    }

    #[test]
    fn events_at_random_explain_nothing() {
        let mut random = fastrand::Rng::with_seed(9);
        let named = (0..100).filter(|_| {
            let mut growth = watched(&[1200.0, 2700.0, 4200.0, 5700.0]);
            let events: Vec<Event> =
                (0..60).map(|index| event(7200.0 * random.f64(), ["a", "b", "c"][index % 3])).collect();
            explain(&mut growth, &events);
            growth.events.iter().any(|kind| kind.more_than_chance)
        });
        let named = named.count();
        assert!(named <= 10, "{named} of 100");
    }

    #[test]
    fn a_level_floor_has_no_steps_and_few_looks_have_none() {
        let mut growth = watched(&[]);
        explain(&mut growth, &[event(60.0, "deploy")]);
        assert_eq!((growth.steps, growth.events), (vec![], vec![]));
        let points = watched(&[1200.0]).points;
        assert!(of(&points[..steps::LEAST_POINTS - 1]).is_empty());
    }

    #[test]
    fn tails_and_covered_time() {
        assert_eq!(covered(&[50.0, 10.0, 15.0, 95.0], 10.0, 100.0), 15.0 + 10.0 + 5.0);
        assert!((at_least(0, 4, 0.3) - 1.0).abs() < 1e-12);
        assert!((at_least(4, 4, 0.5) - 0.0625).abs() < 1e-12);
        assert!((at_least(1, 2, 0.5) - 0.75).abs() < 1e-12);
    }
}
