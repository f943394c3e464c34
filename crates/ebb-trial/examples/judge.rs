//! From the figures of runs to a verdict: `cargo run -p ebb-trial --example judge`. The tests run it.

use ebb_allocators::Allocator;
use ebb_trial::results::{Measures, Metric, Run, Variant, Verdict};
use ebb_trial::{summary, verdict};

/// A variant whose runs took these CPU times and held so many MB after the rest.
fn variant(allocator: Allocator, runs: &[(f64, f64)]) -> Variant {
    let run = |(index, (cpu_s, mb)): (usize, &(f64, f64))| Run {
        measures: Measures { after_rest_bytes: Some(mb * 1e6), cpu_s: Some(*cpu_s), ..Measures::default() },
        ..Run::new(index as u32 + 1)
    };
    let runs = runs.iter().enumerate().map(run).collect();
    Variant { runs, ..Variant::new(allocator.name(), allocator.name()) }
}

/// The first variant is what the service runs on today.
fn judged() -> Verdict {
    let mut variants = [
        variant(Allocator::Glibc, &[(10.0, 343.0), (10.1, 340.0), (10.0, 345.0)]),
        variant(Allocator::Ebbmalloc, &[(10.1, 61.0), (10.0, 60.0), (10.1, 62.0)]),
    ];
    summary::summarise(&mut variants);
    verdict::judge(&variants, Metric::Rss)
}

fn main() {
    println!("{}", judged().sentence);
}

#[test]
fn the_lower_one_is_recommended() {
    let verdict = judged();
    assert_eq!(verdict.variant.as_deref(), Some("ebbmalloc"));
    assert!(verdict.sentence.starts_with("ebbmalloc holds 61 MB after the rest where glibc"));
}
