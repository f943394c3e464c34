//! One test an answer, and the cases in which an answer must not be given.

use super::*;
use crate::results::{Difference, Figure, Run};
use std::collections::BTreeMap;

/// A variant with medians in MB (CPU in seconds) and, with three runs, an interval of +-1 around the
/// difference to `first`.
struct Case {
    name: &'static str,
    runs: u32,
    /// Half the width of the intervals of memory.
    noise: f64,
    figures: Vec<(Column, f64)>,
}

fn case(name: &'static str, after_rest: f64, cpu: f64) -> Case {
    Case {
        name,
        runs: 3,
        noise: 1e6,
        figures: vec![
            (Column::AfterRest, after_rest * 1e6),
            (Column::Growth, (after_rest - 50.0) * 1e6),
            (Column::Cpu, cpu),
        ],
    }
}

impl Case {
    fn with(mut self, column: Column, value: f64) -> Case {
        self.figures.push((column, value));
        self
    }

    fn once(mut self) -> Case {
        self.runs = 1;
        self
    }
}

fn judge_cases(cases: Vec<Case>) -> Verdict {
    judge(&variants_of(cases), Metric::Rss)
}

fn variants_of(cases: Vec<Case>) -> Vec<Variant> {
    let first: BTreeMap<Column, f64> = cases[0].figures.iter().copied().collect();
    cases
        .into_iter()
        .enumerate()
        .map(|(index, case)| {
            let figures = case.figures.into_iter().map(|(column, median)| {
                let versus_first = first.get(&column).filter(|_| index > 0).map(|first| {
                    let value = median - first;
                    let width = match column {
                        Column::Cpu | Column::Throughput => 0.1,
                        _ => case.noise,
                    };
                    Difference {
                        value,
                        interval: (case.runs > 1).then_some((value - width, value + width)),
                        reading: None,
                    }
                });
                (column, Figure { n: case.runs, median, min: median, max: median, versus_first })
            });
            Variant {
                summary: (case.runs > 0).then(|| Summary {
                    runs: case.runs,
                    errors: 0,
                    figures: figures.collect(),
                }),
                ..Variant::new(case.name, case.name)
            }
        })
        .collect()
}

#[test]
fn the_lowest_is_recommended_with_its_cost() {
    let verdict = judge_cases(vec![
        case("glibc", 400.0, 20.0),
        case("jemalloc-1000", 84.0, 24.0),
        case("mimalloc", 290.0, 19.0),
    ]);
    assert_eq!(verdict.kind, VerdictKind::Recommend);
    assert_eq!(verdict.variant.as_deref(), Some("jemalloc-1000"));
    assert_eq!(
        verdict.sentence,
        "jemalloc-1000 holds 84 MB after the rest where glibc holds 400 MB, with 20 % more CPU time \
         (+20 … +21 %)."
    );
}

#[test]
fn a_competitor_wins_over_our_own_where_the_data_say_so() {
    let verdict = judge_cases(vec![
        case("glibc", 400.0, 20.0),
        case("ebbmalloc", 120.0, 19.0),
        case("jemalloc-1000", 84.0, 20.0),
    ]);
    assert_eq!(verdict.variant.as_deref(), Some("jemalloc-1000"));
}

#[test]
fn among_equally_low_ones_the_cheapest_is_named_and_the_others_with_it() {
    let verdict = judge_cases(vec![
        case("glibc", 400.0, 20.0),
        case("jemalloc-1000", 81.0, 26.0),
        case("ebbmalloc", 83.0, 20.0),
    ]);
    assert_eq!(verdict.variant.as_deref(), Some("ebbmalloc"));
    assert!(
        verdict.sentence.contains("as low, at a higher cost: jemalloc-1000"),
        "{}",
        verdict.sentence
    );
    assert!(verdict.sentence.contains("at no measurable cost"), "{}", verdict.sentence);
}

#[test]
fn a_disturbed_trial_says_memory_alone() {
    let mut variants = variants_of(vec![
        case("glibc", 400.0, 20.0).with(Column::Throughput, 100.0),
        case("jemalloc-1000", 84.0, 15.0).with(Column::Throughput, 135.0),
        case("ebbmalloc", 83.0, 24.0).with(Column::Throughput, 80.0),
    ]);
    let mut run = Run::new(1);
    run.disturbance.others_cpu_share = Some(0.4);
    variants[0].runs.push(run);
    let verdict = judge(&variants, Metric::Rss);
    assert_eq!(
        verdict.sentence,
        "ebbmalloc holds 83 MB after the rest where glibc holds 400 MB; cost unknown: disturbed; as low: jemalloc-1000."
    );
    // Other programs that took little are no disturbance.
    variants[0].runs[0].disturbance.others_cpu_share = Some(0.03);
    let verdict = judge(&variants, Metric::Rss);
    assert!(
        verdict.sentence.contains("25 % less CPU time")
            && verdict.sentence.contains("as low, at a higher cost: ebbmalloc"),
        "{}",
        verdict.sentence
    );
}

#[test]
fn memory_that_the_kernel_may_have_taken_is_called_uncertain() {
    let mut variants = variants_of(vec![case("glibc", 400.0, 20.0), case("ebbmalloc", 84.0, 20.0)]);
    let mut run = Run::new(1);
    run.disturbance.memory_pressure_share = Some(0.05);
    variants[1].runs.push(run);
    let sentence = judge(&variants, Metric::Rss).sentence;
    assert!(sentence.ends_with(MEMORY_DISTURBED), "{sentence}");
}

#[test]
fn a_cost_of_more_than_double_is_told_as_a_factor() {
    let verdict = judge_cases(vec![
        case("glibc", 400.0, 20.0),
        case("jemalloc", 84.0, 70.0).with(Column::P99, 1.0),
    ]);
    assert!(verdict.sentence.contains("with 3.5 times the CPU time"), "{}", verdict.sentence);
    assert!(
        !verdict.sentence.contains("p99"),
        "glibc has none to compare with: {}",
        verdict.sentence
    );
}

#[test]
fn nothing_to_gain_where_the_first_is_back_at_its_baseline() {
    let verdict = judge_cases(vec![case("glibc", 54.0, 20.0), case("ebbmalloc", 52.0, 20.0)]);
    assert_eq!(verdict.kind, VerdictKind::NothingToGain);
    assert!(verdict.sentence.contains("4 MB above its baseline"), "{}", verdict.sentence);
}

#[test]
fn a_growing_live_heap_is_told_as_such() {
    let verdict = judge_cases(vec![
        case("glibc", 400.0, 20.0).with(Column::Live, 380e6),
        case("ebbmalloc", 398.0, 20.0),
        case("jemalloc", 402.0, 20.0),
    ]);
    assert_eq!(verdict.kind, VerdictKind::LiveHeapGrows);
    assert!(
        verdict.sentence.contains("No allocator helps, because the live heap grows"),
        "{}",
        verdict.sentence
    );
    assert!(verdict.sentence.contains("380 MB of the 400 MB"), "{}", verdict.sentence);
}

#[test]
fn no_allocator_helps_without_a_claim_about_the_live_heap() {
    let verdict = judge_cases(vec![case("glibc", 400.0, 20.0), case("ebbmalloc", 398.0, 20.0)]);
    assert_eq!(verdict.kind, VerdictKind::NoneHelps);
    assert!(!verdict.sentence.contains("grows"), "{}", verdict.sentence);
}

#[test]
fn what_malloc_trim_would_give_is_said_where_no_allocator_helps() {
    let verdict = judge_cases(vec![
        case("glibc", 400.0, 20.0).with(Column::Reclaimable, 300e6),
        case("tcmalloc", 410.0, 20.0),
    ]);
    assert_eq!(verdict.kind, VerdictKind::NoneHelps);
    assert!(verdict.sentence.contains("malloc_trim returns 300 MB"), "{}", verdict.sentence);
}

#[test]
fn a_difference_whose_interval_holds_zero_is_no_gain() {
    let noisy = |noise| Case { noise, ..case("ebbmalloc", 300.0, 20.0) };
    let clear = judge_cases(vec![case("glibc", 400.0, 20.0), noisy(50e6)]);
    assert_eq!(clear.kind, VerdictKind::Recommend);
    let unclear = judge_cases(vec![case("glibc", 400.0, 20.0), noisy(150e6)]);
    assert_eq!((unclear.kind, unclear.variant), (VerdictKind::NoneHelps, None));
}

#[test]
fn one_run_is_a_direction_only() {
    let verdict =
        judge_cases(vec![case("glibc", 400.0, 20.0).once(), case("ebbmalloc", 61.0, 20.0).once()]);
    assert_eq!(verdict.kind, VerdictKind::Recommend);
    assert!(verdict.sentence.ends_with("One run, direction only."), "{}", verdict.sentence);
}

#[test]
fn silent_without_a_first_or_without_others() {
    let mut absent = case("glibc", 400.0, 20.0);
    absent.runs = 0;
    let verdict = judge_cases(vec![absent, case("ebbmalloc", 61.0, 20.0)]);
    assert_eq!(verdict.kind, VerdictKind::NotEnough);
    assert!(verdict.sentence.contains("glibc has no complete run"));
    let alone = judge_cases(vec![case("glibc", 400.0, 20.0)]);
    assert_eq!(alone.kind, VerdictKind::NotEnough);
    assert!(alone.sentence.contains("no variant that could replace it"));
    let mut died = case("ebbmalloc", 61.0, 20.0);
    died.runs = 0;
    let alive = judge_cases(vec![case("glibc", 400.0, 20.0), died]);
    assert!(alive.sentence.contains("no other variant has a complete"));
    assert_eq!(judge(&[], Metric::Rss).kind, VerdictKind::NotEnough);
}
