use super::*;
use ebb_diagnosis::facts::autoscale::{Outcome, Settings, Target, Vertical};
use ebb_diagnosis::facts::periods::Autoscaled;
use ebb_diagnosis::periods::compare;
use ebb_process::record::{FORMAT, Replica};

/// Two days at 400 MB, then 17 hours at 200 MB, in looks of ten minutes.
fn records() -> (Vec<Record>, Vec<Record>) {
    let begin: Timestamp = "2026-11-22T14:00:00Z".parse().unwrap();
    let record = |number: i64| {
        let (rss, allocator) = if number < 288 { (400, "glibc") } else { (200, "<ebbmalloc>") };
        let replica = Replica {
            pid: if number < 288 { 7 } else { 8 },
            started: 1,
            processes: 1,
            rss: Some((rss + number as u64 % 6) * 1_000_000),
            anon: None,
            swap: None,
            allocator: Some(allocator.into()),
            cgroup: None,
        };
        Record {
            format: FORMAT,
            at: begin + jiff::SignedDuration::from_mins(10 * number),
            every_s: 600.0,
            target: "app".into(),
            replicas: vec![replica],
        }
    };
    ((0..288).map(record).collect(), (288..390).map(record).collect())
}

#[test]
fn the_answer_comes_first_then_times_of_the_zone_and_the_table() {
    let (before, after) = records();
    let mut comparison = compare(&before, &after).unwrap();
    let outcome = |replicas| Outcome {
        target: 300_000_000,
        replicas,
        most: 4,
        started: 3,
        changes: Vec::new(),
        vertical: Vertical {
            request: 500_000_000,
            lower: 400_000_000,
            upper: 900_000_000,
            restarts: 2,
        },
    };
    let settings = Settings { target: Target::Utilization(0.7), request: None, min: 1, max: 20 };
    comparison.autoscale =
        Some(Autoscaled { settings, before: outcome(3.25), after: outcome(1.0) });
    let zone = TimeZone::fixed(jiff::tz::offset(1));
    let text = render(&comparison, &zone);
    assert!(
        text.starts_with("The memory of app is 50 % lower (50 to 50 %), sustained over 17 h"),
        "{text}"
    );
    for expected in [
        "Before: 2026-11-22 15:00 to 2026-11-24 14:50, 288 records, glibc",
        "After: 2026-11-24 15:00 to 2026-11-25 07:50, 102 records, <ebbmalloc>",
        "typical",
        "\u{2212}200.0",
        "highest",
        "drift per day",
        "OOM kills",
        "not known",
        "simulated: replicas, mean (most)",
        "3.2 (4)",
        "500.0 (400.0 … 900.0)",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    assert!(!text.contains("90 % of the limit"), "there is none: {text}");
}

#[test]
fn the_page_has_both_periods_in_one_picture_and_needs_no_network() {
    let (before, after) = records();
    let comparison = compare(&before, &after).unwrap();
    let page = render_page(&comparison, &before, &after, &TimeZone::UTC).unwrap();
    for expected in [
        "<!doctype html>",
        "50 % lower",
        "class=\"plot wide\"",
        "class=\"plot narrow\"",
        "hours since midnight",
        "&lt;ebbmalloc&gt;",
        "the same hours lie above each other",
        "</html>",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    assert_eq!(
        page.matches("<path class=\"line").count(),
        6,
        "two lines, for two screens and the legend"
    );
    for network in ["http://", "https://", "src=", "@import", "url(", "NaN", "<ebbmalloc>"] {
        assert!(!page.contains(network), "{network} in the page");
    }
}
