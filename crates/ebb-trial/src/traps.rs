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
        traps.push(Trap {
            kind,
            variant: None,
            sentence: format!("{what} ({})", seen.seen),
            remedy: remedy.to_owned(),
        });
    }
    traps
}

/// A load of one request at a time never has the concurrency that makes arenas and caches grow.
fn one_stream(variants: &[Variant]) -> Option<Trap> {
    let known: Option<Vec<f64>> = runs(variants).flat_map(Run::loads).map(under_way).collect();
    let most = known?.into_iter().reduce(f64::max)?;
    (most <= ONE_STREAM).then(|| Trap {
        kind: TrapKind::OneStream,
        variant: None,
        sentence: format!(
            "at most {most:.1} requests were in progress at once (requests per second times latency), so threads, \
             arenas and caches are not used as under real traffic"
        ),
        remedy: "Let the load keep several requests in progress".to_owned(),
    })
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
    (latency.p99.is_some_and(p99_is_below) || per_ms * latency.p50 > ONE_STREAM)
        .then_some(per_ms * latency.p50)
}

fn no_idle_phase(variants: &[Variant]) -> Option<Trap> {
    let run = runs(variants).find(|run| run.outcome == Outcome::Complete)?;
    let loaded = run.phases.iter().position(|span| span.kind.counts())?;
    let rests = run.phases[loaded..].iter().any(|span| span.kind == PhaseKind::Idle);
    (!rests).then(|| Trap {
        kind: TrapKind::NoIdlePhase,
        variant: None,
        sentence: "no idle phase follows a phase with load, so the trial cannot show what is kept"
            .to_owned(),
        remedy: "Add a phase of kind \"idle\" after the load".to_owned(),
    })
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
    let trap = |kind, sentence, remedy: &str| {
        Some(Trap {
            kind,
            variant: Some(variant.name.clone()),
            sentence,
            remedy: remedy.to_owned(),
        })
    };
    match variant.decay? {
        Decay::Never => trap(
            TrapKind::NeverReturns,
            "its settings keep all freed memory, so memory after the rest is its peak".to_owned(),
            "Remove the decay of -1 or purge:off, unless you want to measure it",
        ),
        Decay::Within { seconds, only_when_active } if rest < seconds => trap(
            TrapKind::RestTooShort,
            format!(
                "its settings return memory within {seconds} s{}, but the rest lasts {rest:.1} s",
                match only_when_active {
                    true => " of activity",
                    false => "",
                }
            ),
            "Make the rest longer than that, or its decay shorter",
        ),
        Decay::Within { .. } => None,
    }
}

fn did_not_load(variant: &Variant) -> Option<Trap> {
    let discarded =
        variant.runs.iter().filter(|run| matches!(run.outcome, Outcome::Discarded { .. }));
    let (discarded, all) = (discarded.count(), variant.runs.len());
    (discarded > 0).then(|| Trap {
        kind: TrapKind::DidNotLoad,
        variant: Some(variant.name.clone()),
        sentence: format!(
            "in {discarded} of {all} runs its allocator was not in charge of all processes"
        ),
        remedy:
            "Find out what drops LD_PRELOAD (env -i, sudo, a static program, its own entrypoint): \
                 `ebb run --verify` shows each process"
                .to_owned(),
    })
}

#[cfg(test)]
mod tests;
