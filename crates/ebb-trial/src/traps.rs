//! The ways in which a trial can mislead, looked for in its results.
//!
//! Used by `commands/compare` after the last run. Pure. A trap is named only where it was seen: what
//! the results do not tell is no trap.

use crate::results::sureness::{Trap, TrapKind};
use crate::results::{LoadResult, Outcome, PhaseKind, PhaseSpan, Run, Variant};
use ebb_allocators::Decay;
use ebb_process::instruments::InstrumentKind;

/// Requests under way at once below which a load has one stream. One that sends the next request when it
/// has the answer has nearly 1.
const ONE_STREAM: f64 = 1.05;
/// Above this even the slowest requests show that there were several.
const SURELY_SEVERAL: f64 = 2.0;

fn trap(kind: TrapKind, variant: Option<&Variant>, sentence: String, remedy: &str) -> Trap {
    let variant = variant.map(|variant| variant.name.clone());
    Trap { kind, variant, sentence, remedy: remedy.to_owned() }
}

/// All traps, those about the whole trial first.
pub fn look(variants: &[Variant]) -> Vec<Trap> {
    let mut traps: Vec<Trap> = instruments(variants);
    traps.extend(one_stream(variants));
    traps.extend(no_idle_phase(variants));
    for variant in variants {
        traps.extend(returns_too_late(variant));
        traps.extend(did_not_load(variant));
    }
    traps
}

fn runs(variants: &[Variant]) -> impl Iterator<Item = &Run> {
    variants.iter().flat_map(|variant| &variant.runs)
}

/// One trap a kind of instrument, with the first place where it was seen.
fn instruments(variants: &[Variant]) -> Vec<Trap> {
    let mut traps = Vec::new();
    let mut told = Vec::new();
    for seen in runs(variants).flat_map(|run| &run.instruments) {
        if told.contains(&seen.kind) {
            continue;
        }
        told.push(seen.kind);
        let (kind, what, remedy) = match seen.kind {
            InstrumentKind::Tracemalloc => (
                TrapKind::Instrumented,
                "tracemalloc is on and keeps a record of every block: memory and CPU time include its own",
                "Start the service without PYTHONTRACEMALLOC and -X tracemalloc",
            ),
            InstrumentKind::Memray => (
                TrapKind::Instrumented,
                "memray is loaded and intercepts every malloc: CPU time includes its own",
                "Start the service without memray",
            ),
            InstrumentKind::DebugAllocator => (
                TrapKind::Instrumented,
                "CPython's debug allocator adds checks around every block: memory and CPU time are higher than in production",
                "Start the service without PYTHONMALLOC=...debug, PYTHONDEVMODE and -X dev",
            ),
            InstrumentKind::DebugBuild => (
                TrapKind::DebugBuild,
                "the interpreter is a debug build, with larger objects and slower calls",
                "Use the build that runs in production",
            ),
        };
        traps.push(trap(kind, None, format!("{what} ({})", seen.seen), remedy));
    }
    traps
}

/// A load of one request at a time never has the concurrency that makes arenas and caches grow.
fn one_stream(variants: &[Variant]) -> Option<Trap> {
    let known: Option<Vec<f64>> = runs(variants).flat_map(Run::loads).map(under_way).collect();
    let most = known?.into_iter().reduce(f64::max)?;
    let sentence = format!(
        "at most {most:.1} requests were in progress at once (requests per second times latency), so threads, \
         arenas and caches are not used as under real traffic"
    );
    let remedy = "Let the load keep several requests in progress";
    (most <= ONE_STREAM).then(|| trap(TrapKind::OneStream, None, sentence, remedy))
}

/// Mean number of requests under way, by Little's law; `None` where the load tells too little.
fn under_way(load: &LoadResult) -> Option<f64> {
    if load.concurrency.is_some() {
        return load.concurrency;
    }
    let per_ms = load.requests as f64 / load.seconds / 1000.0;
    if let Some(cells) = &load.histogram_ms {
        let requests: u64 = cells.iter().map(|(_, count)| count).sum();
        // The upper bounds: rather too many than too few.
        let sum: f64 = cells.iter().map(|(upper, count)| upper * *count as f64).sum();
        return (requests > 0).then(|| per_ms * sum / requests as f64);
    }
    let latency = load.latency_ms?;
    // The mean lies between; where the slowest would already be several at once it cannot be told.
    let p99_is_below = |p99: f64| per_ms * p99 < SURELY_SEVERAL;
    (latency.p99.is_some_and(p99_is_below) || per_ms * latency.p50 > ONE_STREAM).then_some(per_ms * latency.p50)
}

fn no_idle_phase(variants: &[Variant]) -> Option<Trap> {
    let run = runs(variants).find(|run| run.outcome == Outcome::Complete)?;
    let loaded = run.phases.iter().position(|span| span.kind.counts())?;
    let rests = run.phases[loaded..].iter().any(|span| span.kind == PhaseKind::Idle);
    let sentence = "no idle phase follows a phase with load, so the trial cannot show what is kept";
    let remedy = "Add a phase of kind \"idle\" after the load";
    (!rests).then(|| trap(TrapKind::NoIdlePhase, None, sentence.to_owned(), remedy))
}

/// The shortest rest that the figure "after rest" is taken from.
fn rest(variant: &Variant) -> Option<f64> {
    let last = |run: &Run| -> Option<f64> {
        let spans = run.phases.iter();
        let is_idle = |span: &&PhaseSpan| span.kind == PhaseKind::Idle;
        let span = spans.rev().find(is_idle)?;
        Some(span.to_s - span.from_s)
    };
    variant.complete().filter_map(last).reduce(f64::min)
}

fn returns_too_late(variant: &Variant) -> Option<Trap> {
    let rest = rest(variant)?;
    match variant.decay? {
        Decay::Never => Some(trap(
            TrapKind::NeverReturns,
            Some(variant),
            "its settings keep all freed memory, so memory after the rest is its peak".to_owned(),
            "Remove the decay of -1 or purge:off, unless you want to measure it",
        )),
        Decay::Within { seconds, only_when_active } if rest < seconds => {
            let active = if only_when_active { " of activity" } else { "" };
            Some(trap(
                TrapKind::RestTooShort,
                Some(variant),
                format!("its settings return memory within {seconds} s{active}, but the rest lasts {rest:.1} s"),
                "Make the rest longer than that, or its decay shorter",
            ))
        }
        Decay::Within { .. } => None,
    }
}

fn did_not_load(variant: &Variant) -> Option<Trap> {
    let is_discarded = |run: &&Run| matches!(run.outcome, Outcome::Discarded { .. });
    let discarded = variant.runs.iter().filter(is_discarded).count();
    let all = variant.runs.len();
    let sentence = format!("in {discarded} of {all} runs its allocator was not in charge of all processes");
    let remedy = "Find out what drops LD_PRELOAD (env -i, sudo, a static program, its own entrypoint): \
                  `ebb run --verify` shows each process";
    (discarded > 0).then(|| trap(TrapKind::DidNotLoad, Some(variant), sentence, remedy))
}

#[cfg(test)]
mod tests {
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
                run.instruments.push(Instrument { kind, seen: "process 7, PYTHONTRACEMALLOC=1".into() });
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
        assert_eq!((traps[0].kind, traps[0].variant.as_deref()), (TrapKind::DidNotLoad, Some("mimalloc")));
    }
}
