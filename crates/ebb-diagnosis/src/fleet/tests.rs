use super::*;
use crate::facts::fleet::{Course, Event, InCharge, Reason};

fn course(values: impl IntoIterator<Item = Option<f64>>) -> Course {
    let mut course = Course::default();
    for (at, value) in values.into_iter().enumerate() {
        value.into_iter().for_each(|value| course.set(at, value * 1e6));
    }
    course
}

fn group(name: &str, node: &str, values: &[(f64, f64)]) -> Group {
    Group {
        name: name.into(),
        node: node.into(),
        usage: course(values.iter().map(|it| Some(it.0))),
        returnable: course(values.iter().map(|it| Some(it.1))),
        looks: 2.0,
        request_bytes: Some(1e9),
        ..Group::default()
    }
}

fn history(times: usize, groups: Vec<Group>) -> History {
    History { step_s: 3600.0, times, groups, ..History::default() }
}

#[test]
fn each_figure_is_of_the_same_moments() {
    // a bursts at 1, b at 2; what a holds after its burst makes the node's peak.
    let a = group("a", "n", &[(100.0, 0.0), (500.0, 0.0), (480.0, 400.0), (470.0, 390.0)]);
    let b = group("b", "n", &[(100.0, 50.0), (100.0, 50.0), (300.0, 0.0), (100.0, 50.0)]);
    let idle = group("idle", "m", &[(50.0, 1.0); 4]);
    let mut history = history(4, vec![a, b, idle]);
    history.oom_kills =
        vec![Event { name: "a".into(), at: 2, count: 1.0 }, Event { name: "a".into(), at: 0, count: 2.0 }];
    history.replicas.insert("a".into(), course([1.0, 1.0, 1.0, 2.0].map(Some)));
    let ranking = rank(&history, Some(0.01));
    let names: Vec<&str> = ranking.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "idle"]);
    let a = &ranking.rows[0];
    assert_eq!((a.mean.bytes, a.own_peaks.bytes, a.at_own_peaks_bytes), (197.5e6, 0.0, 0.0));
    // 780 at 2; without what a holds 600 at 1.
    assert_eq!((a.node_peaks.bytes, ranking.node_peaks_bytes), (180e6, 830e6));
    assert_eq!((a.oom_kills, a.oom_kills_holding), (3.0, 1.0));
    assert_eq!((a.scale_outs, a.scale_outs_holding), (1, 1));
    // 1000 - 1.15 x 500 MB at 0.01.
    assert!((a.saving.unwrap().per_hour - 0.00425).abs() < 1e-9, "{:?}", a.saving);
    let all = &ranking.all;
    // 600 - 50 at 1 and 780 - 400 at 2 on one node, 1 on the other.
    assert_eq!((all.node_peaks.bytes, all.containers, all.nodes), (231e6, 3, 2));
    assert!(all.own_peaks.interval.is_some());
    assert!(
        ranking.sentence.contains("without it the peaks of 2 nodes fall by 231 MB of 830 MB (28 %)"),
        "{}",
        ranking.sentence
    );
    assert!(ranking.cautions.is_empty(), "{:?}", ranking.cautions);
}

#[test]
fn what_is_missing_is_no_zero() {
    let mut half = group("half", "n", &[(100.0, 60.0), (100.0, 60.0)]);
    half.request_bytes = None;
    let mut unread = group("unread", "n", &[(10.0, 0.0); 4]);
    unread.returnable = Course::default();
    let ranking = rank(&history(4, vec![half, unread, Group::default()]), Some(1.0));
    let half = &ranking.rows[0];
    assert_eq!((half.mean.bytes, half.share_of_time, half.saving), (60e6, 0.5, None));
    assert_eq!(ranking.rows[1].share_looked, 0.0);
    let all = ranking.cautions.join("; ");
    assert!(all.contains("heaps of 17 % of the memory") && all.contains("never read: unread"), "{all}");
    let empty = rank(&history(0, Vec::new()), None);
    assert!(empty.rows.is_empty() && empty.sentence.starts_with("Nothing to gain"), "{empty:?}");
    let mut course = Course::default();
    course.set(3, 1.0);
    course.set(1, 2.0);
    assert_eq!(course.points().collect::<Vec<_>>(), [(1, 2.0), (3, 1.0)]);
}

#[test]
fn growth_retention_and_wrong_allocators_are_on_the_list() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut live = |per_day: f64| {
        let wave = |at: usize| 20.0 * (at as f64 / 24.0 * std::f64::consts::TAU).sin();
        course((0..168).map(|at| Some(200.0 + wave(at) + per_day * at as f64 / 24.0 + random.f64())))
    };
    let quiet = [(300.0, 2.0); 168];
    let mut groups = vec![group("grows", "n", &quiet), group("waves", "n", &quiet)];
    groups[0].live = live(10.0);
    groups[1].live = live(0.0);
    let back: Vec<(f64, f64)> = (0..168).map(|at| (300.0, if at < 100 { 2.0 } else { 100.0 })).collect();
    groups.push(group("back", "n", &back));
    let mut history = history(168, groups);
    let in_charge = InCharge { containers: 3, not: 1, ebbmalloc: Some((0, 90)) };
    history.in_charge.insert("back".into(), in_charge);
    let found: Vec<(String, Reason, String)> =
        watch_list(&history).into_iter().map(|it| (it.name, it.reason, it.evidence)).collect();
    let reasons: Vec<(&str, Reason)> = found.iter().map(|it| (it.0.as_str(), it.1)).collect();
    assert_eq!(
        reasons,
        [("back", Reason::NotInCharge), ("back", Reason::RetentionIsBack), ("grows", Reason::LiveHeapGrows)]
    );
    assert!(found[1].2.contains("serves no longer") && found[2].2.contains("+10."), "{found:?}");
}
