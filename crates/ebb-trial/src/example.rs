//! A trial for the tests of this crate and of ebb-report: two variants of three runs, one that is not installed, one that
//! failed, one that was discarded.

use crate::results::sureness::Reading;
use crate::results::*;
use ebb_allocators::Allocator;
use std::collections::BTreeMap;

/// The trial.
pub fn trial() -> Trial {
    let glibc = measured(Allocator::Glibc, 2.0, [340.0, 343.0, 345.0], None);
    let ours = measured(Allocator::Ebbmalloc, 4.0, [60.0, 61.0, 62.0], Some(343.0));
    let mut absent = without_runs(Allocator::Tcmalloc);
    absent.unavailable = Some("not installed (Debian package libtcmalloc-minimal4)".into());
    let mut died = without_runs(Allocator::Jemalloc);
    died.runs = vec![run(1, 2.0, 50.0)];
    died.runs[0].outcome = Outcome::Failed {
        reason: "the service was ended by SIGSEGV during burst".into(),
        last_lines: vec!["<segfault> & nothing".into()],
    };
    let mut discarded = without_runs(Allocator::Mimalloc);
    discarded.runs = vec![run(1, 2.0, 50.0)];
    discarded.runs[0].outcome = Outcome::Discarded { reason: "python3 (7) uses malloc from libc".into() };
    Trial {
        format: FORMAT,
        ebb_version: "0.0.0".into(),
        started: "2026-01-02T03:04:05Z".into(),
        seconds: 83.0,
        workload: Workload {
            name: "sse".into(),
            description: "Streams & subscribers".into(),
            profile: Some("demo".into()),
            ..Workload::default()
        },
        machine: Machine { processors: Some(2), ..Machine::default() },
        repetitions: 3,
        interval_ms: 100,
        variants: vec![glibc, ours, absent, died, discarded],
        verdict: Verdict {
            kind: VerdictKind::Recommend,
            variant: Some(Allocator::Ebbmalloc.to_string()),
            sentence: "ebbmalloc holds 61 MB after the rest where glibc holds 343 MB, at no measurable cost.".into(),
        },
        ..Trial::default()
    }
}

fn without_runs(allocator: Allocator) -> Variant {
    Variant::new(allocator.name(), allocator.name())
}

fn measured(allocator: Allocator, burst_s: f64, after_rest: [f64; 3], first: Option<f64>) -> Variant {
    let mut variant = without_runs(allocator);
    variant.runs = (1..=3).zip(after_rest).map(|(repetition, mb)| run(repetition, burst_s, mb)).collect();
    let [low, middle, high] = after_rest.map(|mb| mb * 1e6);
    let versus_first = first.map(|first| Difference {
        value: middle - first * 1e6,
        interval: Some((low - first * 1e6, high - first * 1e6)),
        reading: Some(Reading::Real),
    });
    let figure = Figure { n: 3, median: middle, min: low, max: high, versus_first };
    let cpu = Figure { n: 3, median: 10.0, min: 9.9, max: 10.2, versus_first: None };
    let figures = BTreeMap::from([(Column::AfterRest, figure), (Column::Cpu, cpu)]);
    variant.summary = Some(Summary { runs: 3, errors: 0, figures });
    variant
}

/// Warm-up of 1 s at 50 MB, a burst at 400 MB, a rest of 4 s.
fn run(repetition: u32, burst_s: f64, after_rest: f64) -> Run {
    let span =
        |name: &str, kind, from_s, to_s| PhaseSpan { name: name.into(), kind, round: 1, from_s, to_s, load: None };
    let end_s = 1.0 + burst_s + 4.0;
    let samples = (0..(end_s * 10.0) as u32).map(|tenth| {
        let at_s = f64::from(tenth) / 10.0;
        let mb = match at_s {
            at_s if at_s < 1.0 => 50.0,
            at_s if at_s < 1.0 + burst_s => 400.0 + f64::from(repetition),
            _ => after_rest,
        };
        let rss_bytes = Some((mb * 1e6) as u64);
        Sample { at_s, rss_bytes, live_bytes: Some(30_000_000), processes: 1, ..Sample::default() }
    });
    Run {
        ready_after_s: Some(0.5),
        phases: vec![
            span("warm-up", PhaseKind::Warmup, 0.0, 1.0),
            span("burst", PhaseKind::Burst, 1.0, 1.0 + burst_s),
            span("rest", PhaseKind::Idle, 1.0 + burst_s, end_s),
        ],
        samples: samples.collect(),
        ..Run::new(repetition)
    }
}
