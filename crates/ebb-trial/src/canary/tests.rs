//! Hand-made watches.

use super::*;
use crate::example;
use crate::results::Restart;

/// A side whose memory at a time is given, in MB, sampled every 10 s for 24 minutes.
fn side(name: &str, memory: impl Fn(f64) -> Option<f64>, cpu_per_s: f64) -> Variant {
    let mut variant = example::trial().variants[0].clone();
    variant.name = name.into();
    variant.summary = None;
    variant.runs.truncate(1);
    variant.runs[0].samples = (0..144)
        .map(|at| f64::from(at) * 10.0)
        .filter_map(|at_s| {
            Some(Sample {
                at_s,
                rss_bytes: Some((memory(at_s)? * 1e6) as u64),
                cpu_s: Some(at_s * cpu_per_s),
                processes: 1,
                ..Sample::default()
            })
        })
        .collect();
    variant
}

/// Traffic that comes and goes, the same for all.
fn traffic(at_s: f64) -> f64 {
    60.0 * ((at_s / 400.0).sin() + 1.0)
}

fn watch(old: Variant, new: Variant) -> (Vec<Variant>, Verdict) {
    let canary = cut(1440.0, 10.0, 144);
    assert_eq!((canary.windows, canary.window_s), (24, 60.0));
    let mut variants = vec![old, new];
    summarise(&mut variants, &canary, Metric::Rss);
    let verdict = judge(&variants, &canary, Metric::Rss);
    (variants, verdict)
}

#[test]
fn the_lower_side_is_recommended_where_the_difference_is_clear() {
    let mut random = fastrand::Rng::with_seed(9);
    let noise: Vec<f64> = (0..24).map(|_| 200.0 * random.f64()).collect();
    let noisy = move |at: f64| 200.0 + noise[(at / 60.0) as usize];
    type Memory = Box<dyn Fn(f64) -> f64>;
    type Case = (Memory, Memory, f64, VerdictKind, Option<&'static str>, &'static str);
    let cases: [Case; 4] = [
        (
            Box::new(|at| 300.0 + traffic(at)),
            Box::new(|at| 270.0 + traffic(at)),
            0.5,
            VerdictKind::Recommend,
            Some("new"),
            "-30 … -30 MB over 24 windows of 1m. No real difference in CPU time (+0 … +0 %).",
        ),
        (
            Box::new(|_| 100.0),
            Box::new(|_| 180.0),
            0.9,
            VerdictKind::Recommend,
            Some("old"),
            "old holds 100 MB where new holds 180 MB: new against old +80 … +80 MB over 24 windows of 1m. \
             CPU time of new: +80 % (+80 … +80 %).",
        ),
        (
            Box::new(|at| 300.0 + traffic(at)),
            Box::new(|at| 301.0 + traffic(at)),
            0.5,
            VerdictKind::NoRealDifference,
            None,
            "No real difference between old",
        ),
        (Box::new(|_| 300.0), Box::new(noisy), 0.5, VerdictKind::NotEnough, None, "watch longer"),
    ];
    for (old, new, cpu, kind, variant, words) in cases {
        let (variants, verdict) =
            watch(side("old", |at| Some(old(at)), 0.5), side("new", |at| Some(new(at)), cpu));
        assert!(verdict.sentence.contains(words), "{}", verdict.sentence);
        assert_eq!((verdict.kind, verdict.variant.as_deref()), (kind, variant), "{words}");
        let figures = &variants[1].summary.as_ref().unwrap().figures;
        assert_eq!(figures[&Column::Typical].n, 24);
        assert!(figures[&Column::Floor].median <= figures[&Column::Typical].median);
    }
}

#[test]
fn windows_without_one_side_are_left_out_and_a_restart_ends_the_slope() {
    let growing = |at: f64| Some(100.0 + at / 60.0);
    let mut old = side("old", growing, 0.5);
    let new = side("new", |at| (at > 700.0).then_some(50.0), 0.5);
    let (variants, _) = watch(old.clone(), new);
    let slope = variants[0].runs[0].slope.unwrap();
    assert!((slope.bytes_per_s * 60.0 - 1e6).abs() < 1e4, "{slope:?}");
    let difference = variants[1].summary.as_ref().unwrap().figures[&Column::Typical];
    assert_eq!(difference.n, 12, "a window with one look tells nothing");
    old.runs[0].restarts.push(Restart { at_s: 300.0, text: "restarted".into() });
    let (variants, _) = watch(old, side("new", |_| Some(50.0), 0.5));
    assert_eq!(variants[0].runs[0].slope, None);
}

#[test]
fn nothing_seen_is_not_enough() {
    let (_, verdict) = watch(side("old", |_| Some(1.0), 0.1), side("new", |_| None, 0.1));
    assert_eq!(verdict.kind, VerdictKind::NotEnough);
    assert_eq!(cut(6.0, 1.0, 6).windows, 2);
    assert_eq!(cut(1.0, 1.0, 1).windows, 1);
}
