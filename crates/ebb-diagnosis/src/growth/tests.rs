//! Verdicts over made-up courses of memory.

use super::*;
use ebb_process::example;
use ebb_process::snapshot::{Pool, Process, Snapshot};

const MB: u64 = 1_000_000;

fn last(runtime: Option<Runtime>) -> Diagnosis {
    crate::of(Snapshot {
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
            Point { at_s, ..point(at_s) }
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
    let growth = of(course(|at| heap(50.0 + at * 0.05, 10.0, at * 0.5)), last(None));
    assert_eq!(growth.verdict.kind, VerdictKind::LiveHeapGrows);
    assert_eq!(growth.company, Some(Company::AlwaysLoad));
    assert!(growth.verdict.sentence.contains("180.0 MB per hour"), "{}", growth.verdict.sentence);
    assert_eq!(growth.verdict.next.as_deref(), Some("heaptrack -p 7"));
}

#[test]
fn cycles_on_a_flat_floor_do_not_grow() {
    let saw = |at: f64| 50.0 + (at % 100.0);
    let growth = of(course(|at| heap(saw(at), 10.0, at)), last(None));
    assert!(growth.trends.iter().all(|trend| !trend.grows), "{:?}", growth.trends);
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
        if ((at / 50.0) as u64).is_multiple_of(2) { 40.0 } else { -40.0 }
    };
    let growth =
        of(course(|at| heap(100.0 + turns(at) + at * 0.05, 100.0 - turns(at), at)), last(None));
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
    // Work for 90 s, none for 110 s.
    let work = |at: f64| (at / 200.0).floor() * 90.0 + (at % 200.0).min(90.0);
    let stops = of(course(|at| heap(50.0 + work(at) * 0.2, 10.0, work(at))), last(None));
    assert_eq!(stops.company, Some(Company::OnlyWithLoad), "{}", stops.verdict.sentence);
    let goes_on = of(course(|at| heap(50.0 + at * 0.2, 10.0, work(at))), last(None));
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
    assert!(jvm.verdict.sentence.starts_with("The JVM's own heap"), "{}", jvm.verdict.sentence);
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
    let few: Vec<Point> = course(|at| heap(50.0 + at, 0.0, at)).into_iter().take(4).collect();
    assert_eq!(of(few, last(None)).verdict.kind, VerdictKind::NotEnoughEvidence);
    let little = of(course(|at| heap(500.0 + at * 0.005, 0.0, at)), last(None));
    assert!(little.trends.iter().all(|trend| !trend.grows), "3 of 500 MB");
    assert_eq!(of(Vec::new(), last(None)).verdict.kind, VerdictKind::NotEnoughEvidence);
}

fn sentence_of(points: Vec<Point>) -> (VerdictKind, String) {
    let growth = of(points, last(None));
    (growth.verdict.kind, growth.verdict.sentence)
}

/// 119 looks, one a second, at a process whose live heap is so many MB.
fn two_minutes(live: impl Fn(f64) -> f64) -> Vec<Point> {
    (0..120)
        .map(|look| {
            let at_s = f64::from(look);
            Point { at_s, ..heap(live(at_s), 1.0, at_s * 0.1) }
        })
        .collect()
}

#[test]
fn a_slow_leak_is_too_short_to_tell_and_the_time_that_is_enough_tells_it() {
    // 1 MB a minute.
    let leak = |at: f64| 50.0 + at / 60.0;
    let growth = of(two_minutes(leak), last(None));
    let sentence = &growth.verdict.sentence;
    assert_eq!(growth.verdict.kind, VerdictKind::NotEnoughEvidence);
    assert!(sentence.starts_with("Too short: "), "{sentence}");
    assert!(!sentence.contains("No growth"), "{sentence}");
    assert!(sentence.contains("60.0 MB per hour (95 %: "), "{sentence}");
    assert!(sentence.contains("6 min would be enough"), "{sentence}");
    assert_eq!(growth.verdict.next.as_deref(), Some("ebb why --watch 6m 7"));
    let longer: Vec<Point> = (0..120)
        .map(|look| {
            let at_s = f64::from(look) * 3.0;
            Point { at_s, ..heap(leak(at_s), 1.0, at_s) }
        })
        .collect();
    assert_eq!(sentence_of(longer).0, VerdictKind::LiveHeapGrows);
}

#[test]
fn a_fast_leak_grows() {
    let (kind, sentence) = sentence_of(two_minutes(|at| 50.0 + at));
    assert_eq!(kind, VerdictKind::LiveHeapGrows, "{sentence}");
}

#[test]
fn a_leak_that_shows_through_cycles_grows() {
    let (kind, sentence) = sentence_of(two_minutes(|at| 50.0 + at * 0.5 + (at % 8.0) * 4.0));
    assert_eq!(kind, VerdictKind::LiveHeapGrows, "{sentence}");
}

#[test]
fn a_cache_that_is_full_is_flat_and_not_a_leak() {
    // Full after 57 s of 119, with a little noise.
    let noise = |at: f64| ((at * 7.0) % 5.0) * 0.02;
    let cache = |at: f64| 20.0 + 46.0 * (at / 57.0).min(1.0) + noise(at);
    let growth = of(two_minutes(cache), last(None));
    assert!(growth.trends.iter().all(|trend| !trend.grows), "{:?}", growth.trends);
    let sentence = growth.verdict.sentence;
    assert!(sentence.starts_with("Flat for the last 40 s, after "), "{sentence}");
    assert_ne!(growth.verdict.kind, VerdictKind::LiveHeapGrows);
}

#[test]
fn one_jump_that_stays_is_flat_since_then() {
    let (_, sentence) = sentence_of(two_minutes(|at| if at < 70.0 { 50.0 } else { 90.0 }));
    assert!(sentence.starts_with("Flat for the last 40 s"), "{sentence}");
}

#[test]
fn one_burst_that_goes_back_is_no_growth() {
    let burst = |at: f64| {
        if (40.0..60.0).contains(&at) { 300.0 } else { 50.0 }
    };
    let (_, sentence) = sentence_of(two_minutes(burst));
    assert!(sentence.starts_with("No growth in 119 s"), "{sentence}");
}

#[test]
fn noise_is_no_growth() {
    let mut random = fastrand::Rng::with_seed(5);
    let noise: Vec<f64> = (0..120).map(|_| 60.0 + random.f64()).collect();
    let (_, sentence) = sentence_of(two_minutes(|at| noise[at as usize]));
    assert!(sentence.starts_with("No growth in 119 s"), "{sentence}");
}

/// A slope may be any within an interval as wide as the memory itself.
#[test]
fn what_goes_up_and_down_too_much_is_too_short_to_tell() {
    let mut random = fastrand::Rng::with_seed(6);
    let wild: Vec<f64> = (0..12).map(|_| 50.0 + 200.0 * random.f64()).collect();
    let (kind, sentence) = sentence_of(two_minutes(|at| wild[(at / 10.0) as usize]));
    assert_eq!(kind, VerdictKind::NotEnoughEvidence, "{sentence}");
    assert!(sentence.starts_with("Too short: "), "{sentence}");
}

#[test]
fn a_growth_that_slows_is_too_short_to_tell() {
    let (kind, sentence) = sentence_of(two_minutes(|at| 20.0 + 40.0 * (1.0 - (-at / 35.0).exp())));
    assert_eq!(kind, VerdictKind::NotEnoughEvidence, "{sentence}");
    assert!(sentence.starts_with("Too short: "), "{sentence}");
}

/// Below what matters within a day: named, and no reason to watch on.
#[test]
fn a_drift_of_next_to_nothing_is_not_called_no_growth() {
    let (kind, sentence) = sentence_of(two_minutes(|at| 500.0 + at * 1e-5));
    assert_ne!(kind, VerdictKind::NotEnoughEvidence, "{sentence}");
    assert!(sentence.starts_with("Hardly any growth in 119 s (0.0 MB"), "{sentence}");
}

/// A few pages more, next to a cache that filled.
#[test]
fn a_few_pages_are_no_reason_to_watch_for_longer() {
    let cache = |at: f64| 20.0 + 46.0 * (at / 57.0).min(1.0);
    let points = (0..120).map(|look| {
        let at_s = f64::from(look);
        Point { at_s, ..heap(cache(at_s), 0.2 + at_s * 1e-4, at_s * 0.1) }
    });
    let (_, sentence) = sentence_of(points.collect());
    assert!(sentence.starts_with("Flat for the last 40 s"), "{sentence}");
}

#[test]
fn held_memory_below_the_thresholds_is_no_verdict_and_has_no_stack() {
    let held =
        |from: f64, to: f64| course(move |at| heap(65.0, from + (to - from) * at / 590.0, at));
    let growth = of(held(0.1, 2.6), last(None));
    assert_eq!(growth.verdict.kind, VerdictKind::NotEnoughEvidence);
    assert!(!growth.verdict.sentence.contains("Retention"), "{}", growth.verdict.sentence);
    let growth = of(held(10.0, 70.0), last(None));
    assert_eq!(growth.verdict.kind, VerdictKind::Retention);
    let next = growth.verdict.next.unwrap();
    assert!(next.starts_with("ebb compare"), "{next}");
}

#[test]
fn shared_memory_that_grows_leads_to_its_files() {
    let points = course(|at| Point {
        shared: 20 * MB + (at * 1e5) as u64,
        total: 90 * MB + (at * 1e5) as u64,
        ..heap(60.0, 1.0, at)
    });
    let growth = of(points, last(None));
    assert_eq!(growth.verdict.kind, VerdictKind::NotHeap);
    assert!(growth.verdict.next.unwrap().starts_with("grep -E 'memfd"));
}

#[test]
fn too_few_looks_say_how_long_would_be_enough() {
    let few: Vec<Point> = two_minutes(|at| 50.0 + at).into_iter().take(5).collect();
    let (_, sentence) = sentence_of(few);
    assert!(sentence.starts_with("Too short: 5 looks at service (7) in 4 s"), "{sentence}");
    assert!(sentence.ends_with("30 s would be enough."), "{sentence}");
}
