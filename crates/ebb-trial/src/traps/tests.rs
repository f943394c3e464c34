//! Each trap where it is, and silence where it is not.

use super::*;
use crate::example;
use crate::results::Quantiles;
use ebb_process::instruments::Instrument;

fn kinds(variants: &[Variant]) -> Vec<TrapKind> {
    look(variants).into_iter().map(|trap| trap.kind).collect()
}

/// Two variants of three complete runs with a burst of 2 and 4 s and a rest of 4 s.
fn variants() -> Vec<Variant> {
    example::trial().variants[..2].to_vec()
}

fn with_load(load: LoadResult) -> Vec<Variant> {
    let mut variants = variants();
    for run in variants.iter_mut().flat_map(|variant| &mut variant.runs) {
        run.phases[1].load = Some(load.clone());
    }
    variants
}

fn load(requests: u64, p50: f64, p99: f64) -> LoadResult {
    LoadResult {
        requests,
        errors: 0,
        seconds: 10.0,
        latency_ms: Some(Quantiles { p50, p99: Some(p99) }),
        ..LoadResult::default()
    }
}

#[test]
fn one_stream_is_seen_by_what_the_load_tells() {
    // 100 requests of 99 ms one after another in 10 s; the same with 8 at a time.
    let one = || load(100, 99.0, 105.0);
    let told = |concurrency| LoadResult { concurrency: Some(concurrency), ..one() };
    let histogram_ms = Some(vec![(100.0, 98), (400.0, 2)]);
    for (what, load, is_trap) in [
        ("one after another", one(), true),
        ("8 at a time", load(800, 99.0, 105.0), false),
        ("few slow ones among many quick ones", load(800, 5.0, 500.0), false),
        ("it tells 4", told(4.0), false),
        ("it tells 1", told(1.0), true),
        ("1.06 by upper bounds", LoadResult { histogram_ms, ..one() }, false),
        ("no latency", LoadResult { latency_ms: None, ..one() }, false),
    ] {
        let expected = if is_trap { vec![TrapKind::OneStream] } else { vec![] };
        assert_eq!(kinds(&with_load(load)), expected, "{what}");
    }
    assert_eq!((kinds(&variants()), kinds(&[])), (vec![], vec![]), "without loads");
}

#[test]
fn a_rest_shorter_than_the_decay_is_told_of_that_variant() {
    let mut variants = variants();
    let within = |seconds| Some(Decay::Within { seconds, only_when_active: false });
    variants[0].decay = within(3.9);
    variants[1].decay = within(10.0);
    let traps = look(&variants);
    assert_eq!(traps.len(), 1, "{traps:?}");
    assert_eq!(traps[0].variant.as_deref(), Some("ebbmalloc"));
    assert!(traps[0].sentence.contains("within 10 s, but the rest lasts 4.0 s"), "{traps:?}");
    variants[1].decay = Some(Decay::Never);
    assert_eq!(kinds(&variants), [TrapKind::NeverReturns]);
}

#[test]
fn an_instrument_is_told_once() {
    let mut variants = variants();
    for run in variants.iter_mut().flat_map(|variant| &mut variant.runs) {
        for kind in [InstrumentKind::Tracemalloc, InstrumentKind::DebugBuild] {
            run.instruments
                .push(Instrument { kind, seen: "process 7, PYTHONTRACEMALLOC=1".into() });
        }
    }
    let traps = look(&variants);
    assert_eq!(traps.len(), 2);
    assert!(traps[0].sentence.contains("PYTHONTRACEMALLOC=1"), "{traps:?}");
    assert_eq!(traps[1].kind, TrapKind::DebugBuild);
}

#[test]
fn load_without_a_rest_and_runs_that_were_not_in_charge_are_told() {
    let mut restless = variants();
    for run in restless.iter_mut().flat_map(|variant| &mut variant.runs) {
        run.phases.pop();
    }
    assert_eq!(kinds(&restless), [TrapKind::NoIdlePhase]);
    let traps = look(&example::trial().variants);
    assert_eq!(traps.len(), 1);
    assert_eq!(
        (traps[0].kind, traps[0].variant.as_deref()),
        (TrapKind::DidNotLoad, Some("mimalloc"))
    );
}
