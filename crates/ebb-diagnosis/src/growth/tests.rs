//! Verdicts over made-up courses of memory.

use super::*;
use ebb_process::example;
use ebb_process::snapshot::{Pool, Process, Snapshot};

const MB: u64 = 1_000_000;

pub(super) fn last(runtime: Option<Runtime>) -> Diagnosis {
    crate::of(Snapshot {
        at_s: 600.0,
        ..example::snapshot(vec![Process { pid: 7, name: "service".into(), runtime, ..Process::default() }])
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

pub(super) fn heap(live: f64, held: f64, cpu_s: f64) -> Point {
    Point {
        live: Some((live * 1e6) as u64),
        held: Some((held * 1e6) as u64),
        other: 3 * MB,
        total: ((live + held) * 1e6) as u64 + 3 * MB,
        cpu_s,
        ..Point::default()
    }
}

/// Looks at a process whose live heap is so many MB: 120, `step_s` apart.
fn looks(step_s: f64, live: impl Fn(f64) -> f64) -> Vec<Point> {
    let point = |at_s: f64| Point { at_s, ..heap(live(at_s), 1.0, at_s * 0.1) };
    (0..120).map(|look| point(f64::from(look) * step_s)).collect()
}

fn random(seed: u64, count: usize) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.f64()).take(count).collect()
}

/// `^` in `words` is the beginning of the sentence.
fn check(name: &str, growth: &Growth, kind: VerdictKind, words: &str, next: &str) {
    let Verdict { kind: found, sentence, next: command, .. } = &growth.verdict;
    assert_eq!(*found, kind, "{name}: {sentence}");
    assert!(format!("^{sentence}").contains(words), "{name}: {sentence}");
    let command = command.as_deref().unwrap_or_default();
    assert!(command.starts_with(next), "{name}: {command}");
}

#[test]
fn growth_has_a_verdict_a_sentence_and_a_next_step() {
    use VerdictKind::{LiveHeapGrows, NotEnoughEvidence, NotHeap, Retention};
    let leak = |at: f64| 50.0 + at / 60.0;
    let wild = random(6, 12);
    let wild = |at: f64| 50.0 + 200.0 * wild[(at / 10.0) as usize];
    let mut few = looks(1.0, |at| 50.0 + at);
    few.truncate(5);
    let shared = course(|at| {
        let shared = 20 * MB + (at * 1e5) as u64;
        Point { shared, total: 70 * MB + shared, ..heap(60.0, 1.0, at) }
    });
    // What grows is then one, then another: none of the series for long enough.
    let in_turns = course(|at| {
        let turn = if ((at / 50.0) as u64).is_multiple_of(2) { 40.0 } else { -40.0 };
        heap(100.0 + turn + at * 0.05, 100.0 - turn, at)
    });
    let slows = |at: f64| 20.0 + 40.0 * (1.0 - (-at / 35.0).exp());
    let native = course(|at| heap(50.0 + at * 0.05, 10.0, at * 0.5));
    let held = course(|at| heap(50.0, 10.0 + at * 0.1, at));
    let in_cycles = looks(1.0, |at| 50.0 + at * 0.5 + (at % 8.0) * 4.0);
    for (name, points, kind, words, next) in [
        ("native growth", native, LiveHeapGrows, "180.0 MB per hour", "heaptrack -p 7"),
        ("held memory", held, Retention, "", "ebb compare"),
        ("shared memory", shared, NotHeap, "", "grep -E 'memfd"),
        ("a fast leak", looks(1.0, |at| 50.0 + at), LiveHeapGrows, "", "heaptrack"),
        ("a leak that shows through cycles", in_cycles, LiveHeapGrows, "", "heaptrack"),
        ("1 MB a minute", looks(1.0, leak), NotEnoughEvidence, "^Too short: ", "ebb why --watch 6m 7"),
        ("its interval", looks(1.0, leak), NotEnoughEvidence, "60.0 MB per hour (95 %: ", ""),
        ("its time", looks(1.0, leak), NotEnoughEvidence, "6 min would be enough", ""),
        ("the same for long enough", looks(3.0, leak), LiveHeapGrows, "", "heaptrack"),
        ("a growth that slows", looks(1.0, slows), NotEnoughEvidence, "^Too short: ", ""),
        // A slope may be any within an interval as wide as the memory itself.
        ("up and down", looks(1.0, wild), NotEnoughEvidence, "^Too short: ", ""),
        ("5 looks", few.clone(), NotEnoughEvidence, "^Too short: 5 looks at service (7) in 4 s", ""),
        ("time for them", few, NotEnoughEvidence, "30 s would be enough.", ""),
        ("no look", Vec::new(), NotEnoughEvidence, "^Not enough evidence: ", ""),
        ("no series alone", in_turns, NotEnoughEvidence, "but no single part grows enough", ""),
    ] {
        check(name, &of(points, last(None)), kind, words, next);
    }
    let mut ours = last(None);
    ours.snapshot.processes[0].allocator.name = Some("ebbmalloc".into());
    let growth = of(looks(1.0, |at| 50.0 + at), ours);
    check("a leak on ebbmalloc", &growth, LiveHeapGrows, "", "ebb profile 7");
}

#[test]
fn a_runtimes_heap_that_grows_may_be_garbage_but_cpythons_arenas_are_needed() {
    use VerdictKind::{LiveHeapGrows, NotEnoughEvidence};
    let mut arrow = last(Some(Runtime::Cpython));
    arrow.snapshot.processes[0].pool = Some(Pool::Arrow);
    let either = "^Arrow's own pool or CPython's own heap, whose live part is not known";
    let python = last(Some(Runtime::Cpython));
    for (name, last, kind, words, next) in [
        ("JVM", last(Some(Runtime::Jvm)), NotEnoughEvidence, "^The JVM's own heap", "jcmd"),
        ("CPython", python, LiveHeapGrows, "", "memray attach 7"),
        ("Arrow", arrow, NotEnoughEvidence, either, "memray attach 7"),
    ] {
        let points = course(|at| {
            let grown = 50 * MB + (at * 1e5) as u64;
            Point { other: grown, total: 10 * MB + grown, ..heap(10.0, 0.0, at) }
        });
        check(name, &of(points, last), kind, words, next);
    }
}

/// None of these is a growing heap: the words say what they are.
#[test]
fn what_does_not_grow_is_said_to_be_steady() {
    // Full after 57 s of 119.
    let cache = |at: f64| 20.0 + 46.0 * (at / 57.0).min(1.0);
    let noisy_cache = |at: f64| cache(at) + ((at * 7.0) % 5.0) * 0.02;
    let mut pages = looks(1.0, cache);
    pages.iter_mut().for_each(|it| it.held = Some(200_000 + (it.at_s * 100.0) as u64));
    let burst = |at: f64| if (40.0..60.0).contains(&at) { 300.0 } else { 50.0 };
    let noise = random(5, 120);
    let cycles = course(|at| heap(50.0 + (at % 100.0), 10.0, at));
    let held = course(|at| heap(65.0, 0.1 + 2.5 * at / 590.0, at));
    for (name, points, words) in [
        ("cycles on a flat floor", cycles, "^No growth in 10 min"),
        ("a cache that is full", looks(1.0, noisy_cache), "^Flat for the last 40 s, after "),
        ("a few pages next to a cache", pages, "^Flat for the last 40 s"),
        ("a jump", looks(1.0, |at| if at < 70.0 { 50.0 } else { 90.0 }), "^Flat for the last 40 s"),
        ("one burst that goes back", looks(1.0, burst), "^No growth in 119 s"),
        ("noise", looks(1.0, |at| 60.0 + noise[at as usize]), "^No growth in 119 s"),
        // Below what matters within a day: named, and no reason to watch on.
        ("a drift", looks(1.0, |at| 500.0 + at * 1e-5), "^Hardly any growth in 119 s (0.0 MB"),
        ("3 of 500 MB", course(|at| heap(500.0 + at * 0.005, 0.0, at)), ""),
        ("held memory below the thresholds", held, ""),
    ] {
        let growth = of(points, last(None));
        let Verdict { kind, sentence, .. } = &growth.verdict;
        assert!(format!("^{sentence}").contains(words), "{name}: {sentence}");
        let grows = matches!(kind, VerdictKind::LiveHeapGrows | VerdictKind::Retention);
        assert!(!grows && growth.company.is_none(), "{name}: {sentence}");
    }
}

#[test]
fn growth_with_load_only_is_told_from_growth_in_idleness() {
    // Work for 90 s, none for 110 s.
    let work = |at: f64| (at / 200.0).floor() * 90.0 + (at % 200.0).min(90.0);
    for (dependence, points) in [
        (LoadDependence::OnlyWithLoad, course(|at| heap(50.0 + work(at) * 0.2, 10.0, work(at)))),
        (LoadDependence::WithAndWithoutLoad, course(|at| heap(50.0 + at * 0.2, 10.0, work(at)))),
        (LoadDependence::AlwaysLoad, course(|at| heap(50.0 + at * 0.05, 10.0, at * 0.5))),
        (LoadDependence::NoLoad, course(|at| heap(50.0 + at * 0.2, 10.0, 0.0))),
    ] {
        let growth = of(points, last(None));
        assert_eq!(growth.company, Some(dependence), "{}", growth.verdict.sentence);
    }
}
