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
        concurrency: None,
        latency_ms: Some(Quantiles { p50, p99: Some(p99) }),
        histogram_ms: None,
        tool: None,
    }
}

#[test]
fn a_trial_without_traps_has_none() {
    assert_eq!(kinds(&variants()), []);
    assert_eq!(kinds(&[]), []);
}

#[test]
fn one_stream_is_seen_by_requests_and_latency() {
    // 100 requests of 99 ms one after another in 10 s; the same with 8 at a time.
    assert_eq!(kinds(&with_load(load(100, 99.0, 105.0))), [TrapKind::OneStream]);
    assert_eq!(kinds(&with_load(load(800, 99.0, 105.0))), []);
    // Few slow ones among many quick ones: the median alone would tell a wrong story.
    assert_eq!(kinds(&with_load(load(800, 5.0, 500.0))), []);
}

#[test]
fn a_load_that_tells_its_concurrency_or_its_histogram_is_believed() {
    let mut told = load(100, 99.0, 105.0);
    told.concurrency = Some(4.0);
    assert_eq!(kinds(&with_load(told.clone())), []);
    told.concurrency = Some(1.0);
    assert_eq!(kinds(&with_load(told.clone())), [TrapKind::OneStream]);
    told.concurrency = None;
    told.histogram_ms = Some(vec![(100.0, 98), (400.0, 2)]);
    assert_eq!(kinds(&with_load(told)), [], "1.06 by upper bounds");
    let mut silent = load(100, 99.0, 105.0);
    silent.latency_ms = None;
    assert_eq!(kinds(&with_load(silent)), []);
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
