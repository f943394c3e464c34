//! Verdicts over made-up courses of memory.

use super::*;
use crate::facts::example;
use crate::facts::snapshot::{Pool, Process, Snapshot};
use crate::verdict;

const MB: u64 = 1_000_000;

fn last(runtime: Option<Runtime>) -> Diagnosis {
    verdict::of(Snapshot {
        at_s: 600.0,
        ..example::snapshot(vec![Process {
            pid: 7,
            name: "service".into(),
            runtime,
            ..Process::default()
        }])
    })
}

/// 60 looks in 10 minutes.
fn course(point: impl Fn(f64) -> Point) -> Vec<Point> {
    (0..60)
        .map(|look| {
            let at_s = f64::from(look) * 10.0;
            Point {
                at_s,
                ..point(at_s)
            }
        })
        .collect()
}

fn heap(live: f64, held: f64, cpu_s: f64) -> Point {
    Point {
        live: Some((live * 1e6) as u64),
        held: Some((held * 1e6) as u64),
        other: 3 * MB,
        total: ((live + held) * 1e6) as u64 + 3 * MB,
        cpu_s,
        ..Point::default()
    }
}

#[test]
fn a_steady_native_growth_is_a_growing_live_heap() {
    let growth = of(
        course(|at| heap(50.0 + at * 0.05, 10.0, at * 0.5)),
        last(None),
    );
    assert_eq!(growth.verdict.kind, VerdictKind::LiveHeapGrows);
    assert_eq!(growth.company, Some(Company::AlwaysLoad));
    assert!(
        growth.verdict.sentence.contains("180.0 MB an hour"),
        "{}",
        growth.verdict.sentence
    );
    assert_eq!(growth.verdict.next.as_deref(), Some("heaptrack -p 7"));
}

#[test]
fn cycles_on_a_flat_floor_do_not_grow() {
    let saw = |at: f64| 50.0 + (at % 100.0);
    let growth = of(course(|at| heap(saw(at), 10.0, at)), last(None));
    assert!(
        growth.trends.iter().all(|trend| !trend.grows),
        "{:?}",
        growth.trends
    );
    assert!(
        growth.verdict.sentence.starts_with("No growth in 10 min"),
        "{}",
        growth.verdict.sentence
    );
}

/// What grows is then one, then another: none of the series for long enough.
#[test]
fn growth_that_no_series_shows_alone_is_not_enough_evidence() {
    let turns = |at: f64| {
        if ((at / 50.0) as u64).is_multiple_of(2) {
            40.0
        } else {
            -40.0
        }
    };
    let growth = of(
        course(|at| heap(100.0 + turns(at) + at * 0.05, 100.0 - turns(at), at)),
        last(None),
    );
    let by = |series| growth.trends.iter().find(|trend| trend.series == series);
    assert!(by(Series::Total).is_some_and(|trend| trend.grows));
    assert!(by(Series::Live).is_some_and(|trend| !trend.grows));
    assert_eq!(growth.verdict.kind, VerdictKind::NotEnoughEvidence);
}

#[test]
fn held_memory_that_grows_is_retention_and_not_a_growing_live_heap() {
    let growth = of(course(|at| heap(50.0, 10.0 + at * 0.1, at)), last(None));
    assert_eq!(growth.verdict.kind, VerdictKind::Retention);
}

#[test]
fn growth_with_load_only_is_told_from_growth_in_idleness() {
    // Work in the first half only.
    let cpu = |at: f64| at.min(300.0);
    let stops = of(
        course(|at| heap(50.0 + at.min(300.0) * 0.2, 10.0, cpu(at))),
        last(None),
    );
    assert_eq!(
        stops.company,
        Some(Company::OnlyWithLoad),
        "{}",
        stops.verdict.sentence
    );
    let goes_on = of(
        course(|at| heap(50.0 + at * 0.2, 10.0, cpu(at))),
        last(None),
    );
    assert_eq!(goes_on.company, Some(Company::WithAndWithoutLoad));
    let idle = of(course(|at| heap(50.0 + at * 0.2, 10.0, 0.0)), last(None));
    assert_eq!(idle.company, Some(Company::NoLoad));
}

#[test]
fn a_runtimes_heap_that_grows_may_be_garbage_but_cpythons_arenas_are_needed() {
    let course = || {
        course(|at| Point {
            other: 50 * MB + (at * 1e5) as u64,
            total: 60 * MB + (at * 1e5) as u64,
            cpu_s: at,
            ..heap(10.0, 0.0, at)
        })
    };
    let jvm = of(course(), last(Some(Runtime::Jvm)));
    assert_eq!(jvm.verdict.kind, VerdictKind::NotEnoughEvidence);
    assert!(
        jvm.verdict.sentence.starts_with("The JVM's own heap"),
        "{}",
        jvm.verdict.sentence
    );
    let python = of(course(), last(Some(Runtime::Cpython)));
    assert_eq!(python.verdict.kind, VerdictKind::LiveHeapGrows);
    assert_eq!(python.verdict.next.as_deref(), Some("memray attach 7"));
    let mut arrow = last(Some(Runtime::Cpython));
    arrow.snapshot.processes[0].pool = Some(Pool::Arrow);
    let arrow = of(course(), arrow);
    assert_eq!(arrow.verdict.kind, VerdictKind::NotEnoughEvidence);
    assert!(
        arrow
            .verdict
            .sentence
            .starts_with("Arrow's own pool or CPython's own heap, whose live part is not known"),
        "{}",
        arrow.verdict.sentence
    );
}

#[test]
fn a_few_looks_or_a_little_growth_are_not_enough() {
    let few: Vec<Point> = course(|at| heap(50.0 + at, 0.0, at))
        .into_iter()
        .take(4)
        .collect();
    assert_eq!(
        of(few, last(None)).verdict.kind,
        VerdictKind::NotEnoughEvidence
    );
    let little = of(course(|at| heap(500.0 + at * 0.005, 0.0, at)), last(None));
    assert!(
        little.trends.iter().all(|trend| !trend.grows),
        "3 of 500 MB"
    );
    assert_eq!(
        of(Vec::new(), last(None)).verdict.kind,
        VerdictKind::NotEnoughEvidence
    );
}
