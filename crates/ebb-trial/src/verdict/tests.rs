//! Each answer, and the cases in which an answer must not be given.

use super::*;
use crate::example;
use crate::results::{Difference, Figure, Oom};

/// A variant with medians in MB (CPU time in seconds) and, with several runs, an interval around the difference to the
/// first.
#[derive(Clone)]
struct Case {
    name: &'static str,
    runs: u32,
    /// Half the width of the intervals of memory.
    noise: f64,
    figures: Vec<(Column, f64)>,
}

fn case(name: &'static str, after_rest: f64, cpu: f64) -> Case {
    let figures =
        vec![(Column::AfterRest, after_rest * 1e6), (Column::Growth, (after_rest - 50.0) * 1e6), (Column::Cpu, cpu)];
    Case { name, runs: 3, noise: 1e6, figures }
}

impl Case {
    fn with(mut self, column: Column, value: f64) -> Case {
        self.figures.push((column, value));
        self
    }

    fn runs(self, runs: u32) -> Case {
        Case { runs, ..self }
    }

    fn variant(self, first: Option<&Case>) -> Variant {
        let figures = self.figures.iter().map(|(column, median)| {
            let before = first.and_then(|first| first.figures.iter().find(|it| it.0 == *column));
            let versus_first = before.map(|(_, before)| {
                let value = median - before;
                let is_cost = matches!(column, Column::Cpu | Column::Throughput);
                let width = if is_cost { 0.1 } else { self.noise };
                let interval = (self.runs > 1).then_some((value - width, value + width));
                Difference { value, interval, reading: None }
            });
            let (n, median) = (self.runs, *median);
            (*column, Figure { n, median, min: median, max: median, versus_first })
        });
        let summary = Summary { runs: self.runs, errors: 0, figures: figures.collect() };
        let summary = (self.runs > 0).then_some(summary);
        Variant { summary, ..Variant::new(self.name, self.name) }
    }
}

fn variants_of(cases: &[Case]) -> Vec<Variant> {
    let variant = |(index, case): (usize, &Case)| case.clone().variant(cases.first().filter(|_| index > 0));
    cases.iter().enumerate().map(variant).collect()
}

/// What is tested, the variants, the answer, the recommended variant, parts of the sentence and what it does not have.
type Expected<'a> = (&'a str, Vec<Case>, VerdictKind, Option<&'a str>, &'a [&'a str], &'a str);

#[test]
fn every_answer_is_given_where_the_figures_say_so() {
    use VerdictKind::{LiveHeapGrows, NoneHelps, NotEnough, NothingToGain, Recommend};
    let glibc = || case("glibc", 400.0, 20.0);
    let ours = |after_rest| case("ebbmalloc", after_rest, 20.0);
    let noisy = |noise| Case { noise, ..ours(300.0) };
    let cases: [Expected; 17] = [
        (
            "the lowest is recommended with its cost",
            vec![glibc(), case("jemalloc-1000", 84.0, 24.0), case("mimalloc", 290.0, 19.0)],
            Recommend,
            Some("jemalloc-1000"),
            &[
                "jemalloc-1000 holds 84 MB after the rest where glibc holds 400 MB, with 20 % more CPU time (+20 … +21 %).",
            ],
            "One run",
        ),
        (
            "a competitor wins over our own where the data say so",
            vec![glibc(), case("ebbmalloc", 120.0, 19.0), case("jemalloc-1000", 84.0, 20.0)],
            Recommend,
            Some("jemalloc-1000"),
            &[],
            "ebbmalloc",
        ),
        (
            "among equally low ones the cheapest is named and the others with it",
            vec![glibc(), case("jemalloc-1000", 81.0, 26.0), ours(83.0)],
            Recommend,
            Some("ebbmalloc"),
            &["as low, at a higher cost: jemalloc-1000", "at no measurable cost"],
            "unclear",
        ),
        (
            "a cost of more than double is a factor; glibc has no p99 to compare with",
            vec![glibc(), case("jemalloc", 84.0, 70.0).with(Column::P99, 1.0)],
            Recommend,
            Some("jemalloc"),
            &["with 3.5 times the CPU time"],
            "p99",
        ),
        (
            "the first is back at its baseline",
            vec![case("glibc", 54.0, 20.0), ours(52.0)],
            NothingToGain,
            None,
            &["4 MB above its baseline"],
            "helps",
        ),
        (
            "a growing live heap",
            vec![glibc().with(Column::Live, 380e6), ours(398.0), case("jemalloc", 402.0, 20.0)],
            LiveHeapGrows,
            None,
            &["No allocator helps, because the live heap grows", "380 MB of the 400 MB"],
            "malloc_trim",
        ),
        (
            "nobody is lower, and nothing is known of the live heap",
            vec![glibc(), ours(398.0)],
            NoneHelps,
            None,
            &[],
            "grows",
        ),
        (
            "nobody is lower, but malloc_trim returns memory",
            vec![glibc().with(Column::Reclaimable, 300e6), case("tcmalloc", 410.0, 20.0)],
            NoneHelps,
            None,
            &["malloc_trim returns 300 MB"],
            "grows",
        ),
        ("noise smaller than the gain", vec![glibc(), noisy(50e6)], Recommend, Some("ebbmalloc"), &[], "helps"),
        ("an interval that holds zero", vec![glibc(), noisy(150e6)], NoneHelps, None, &[], "grows"),
        (
            "one run is a direction only",
            vec![glibc().runs(1), ours(61.0).runs(1)],
            Recommend,
            Some("ebbmalloc"),
            &[" One run, direction only."],
            "no measurable cost",
        ),
        (
            "without the first",
            vec![glibc().runs(0), ours(61.0)],
            NotEnough,
            None,
            &["glibc has no complete run"],
            "holds",
        ),
        ("without others", vec![glibc()], NotEnough, None, &["no variant that could replace it"], "complete"),
        (
            "without a complete run of another",
            vec![glibc(), ours(61.0).runs(0)],
            NotEnough,
            None,
            &["no other variant has a complete"],
            "replace",
        ),
        ("without any", vec![], NotEnough, None, &["no variant was run"], "holds"),
        (
            "a small gain is not worth a change",
            vec![glibc(), ours(392.5)],
            NoneHelps,
            None,
            &["every variant holds about what glibc holds, 400 MB"],
            "grows",
        ),
        (
            "malloc_trim returns little",
            vec![glibc().with(Column::Reclaimable, 2e6), ours(400.0)],
            NoneHelps,
            None,
            &["malloc_trim returns only 2 MB"],
            "although",
        ),
    ];
    for (what, cases, kind, variant, parts, absent) in cases {
        let verdict = judge(&variants_of(&cases), Metric::Rss);
        let sentence = &verdict.sentence;
        assert_eq!((verdict.kind, verdict.variant.as_deref()), (kind, variant), "{what}: {sentence}");
        for part in parts {
            assert!(sentence.contains(part), "{what}: {sentence}");
        }
        assert!(!sentence.contains(absent), "{what}: {sentence}");
    }
}

#[test]
fn a_disturbed_trial_says_memory_alone() {
    let mut variants = variants_of(&[
        case("glibc", 400.0, 20.0).with(Column::Throughput, 100.0),
        case("jemalloc-1000", 84.0, 15.0).with(Column::Throughput, 135.0),
        case("ebbmalloc", 83.0, 24.0).with(Column::Throughput, 80.0),
    ]);
    let mut run = Run::new(1);
    run.disturbance.others_cpu_share = Some(0.4);
    variants[0].runs.push(run);
    assert_eq!(
        judge(&variants, Metric::Rss).sentence,
        "ebbmalloc holds 83 MB after the rest where glibc holds 400 MB; cost unknown: disturbed; as low: jemalloc-1000."
    );
    // Other programs that took little are no disturbance.
    variants[0].runs[0].disturbance.others_cpu_share = Some(0.03);
    let sentence = judge(&variants, Metric::Rss).sentence;
    for part in ["25 % less CPU time", "as low, at a higher cost: ebbmalloc"] {
        assert!(sentence.contains(part), "{sentence}");
    }
    // The kernel may have taken pages that no allocator returned.
    variants[0].runs[0].disturbance.memory_pressure_share = Some(0.05);
    let sentence = judge(&variants, Metric::Rss).sentence;
    assert!(sentence.ends_with(MEMORY_DISTURBED), "{sentence}");
}

/// The example's glibc and ebbmalloc; those named were killed in their first `runs`.
fn killed(names: &[(&str, usize)]) -> Vec<Variant> {
    let mut variants = example::trial().variants;
    variants.truncate(2);
    for (name, runs) in names {
        let variant = variants.iter_mut().find(|variant| variant.name == *name).unwrap();
        for (index, run) in variant.runs.iter_mut().take(*runs).enumerate() {
            let at_s = Some(index as f64 + 10.0);
            run.oom = Some(Oom { at_s, kills: 1, limit_bytes: Some(64_000_000) });
        }
        if *runs == variant.runs.len() {
            variant.summary = None;
        }
    }
    variants
}

#[test]
fn a_limit_decides_where_the_first_was_killed() {
    for names in [&[][..], &[("ebbmalloc", 3)]] {
        assert_eq!(at_limit(&killed(names)), None, "{names:?}");
    }
    for (names, variant, sentence) in [
        (
            &[("glibc", 3)][..],
            Some("ebbmalloc"),
            "ebbmalloc stays within the limit where glibc is OOM-killed after 11 s, in 3 of 3 runs, under a limit of 64 MB.",
        ),
        (
            &[("glibc", 1)],
            Some("ebbmalloc"),
            "ebbmalloc stays within the limit where glibc is OOM-killed after 10 s, in 1 of 3 runs, under a limit of 64 MB.",
        ),
        (
            &[("glibc", 3), ("ebbmalloc", 1)],
            None,
            "No allocator helps: glibc is OOM-killed after 11 s, in 3 of 3 runs, under a limit of 64 MB, and so is every \
             other variant (ebbmalloc).",
        ),
    ] {
        let verdict = judge(&killed(names), Metric::Rss);
        assert_eq!((verdict.variant.as_deref(), verdict.sentence.as_str()), (variant, sentence));
    }
}
