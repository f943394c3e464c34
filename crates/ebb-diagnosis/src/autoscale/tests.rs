use super::horizontal::SYNC_S;
use super::*;

const MB: f64 = 1e6;

/// One replica whose memory is `of` the time, every minute.
fn course(minutes: u32, of: impl Fn(f64) -> f64) -> Vec<Look> {
    let look = |minute: u32| {
        let at_s = f64::from(minute) * 60.0;
        let bytes = (of(at_s) * MB) as u64;
        Look { at_s, replicas: vec![Seen { life: (1, 1), bytes, oom_kills: 0 }] }
    };
    (0..minutes).map(look).collect()
}

fn settings(target_mb: u64, min: u32, max: u32) -> Settings {
    Settings { target: Target::Bytes(target_mb * 1_000_000), request: None, min, max }
}

/// The examples of the documentation: 200m against 100m doubles, 50m halves; within a tenth nothing happens.
#[test]
fn the_horizontal_rule_is_that_of_the_documentation() {
    for (replicas, mean, expected) in
        [(3, 200.0, 6), (4, 50.0, 2), (3, 109.0, 3), (3, 91.0, 3), (3, 111.0, 4), (10, 89.0, 9)]
    {
        assert_eq!(horizontal::desired(replicas, mean, 100.0), expected, "{replicas} at {mean}");
    }
    for (replicas, expected) in [(1, 5), (3, 7), (10, 20)] {
        let mut horizontal = Horizontal::new(replicas, 1, 100);
        assert_eq!(horizontal.step(0.0, 900.0, 100.0), expected, "four more, or twice as many");
    }
}

#[test]
fn fewer_replicas_come_after_five_minutes_without_a_wish_for_more() {
    let mut horizontal = Horizontal::new(4, 2, 10);
    assert_eq!(horizontal.step(0.0, 100.0, 100.0), 4);
    for step in 1..=20 {
        assert_eq!(horizontal.step(f64::from(step) * SYNC_S, 40.0, 100.0), 4, "{step}");
    }
    assert_eq!(horizontal.step(21.0 * SYNC_S, 40.0, 100.0), 2);
    assert_eq!(horizontal.step(22.0 * SYNC_S, 900.0, 100.0), 6, "at most four more at once");
    assert_eq!(horizontal.step(23.0 * SYNC_S, 900.0, 100.0), 10, "the most");
}

#[test]
fn load_is_shared_and_the_base_is_not() {
    // 50 MB stay in each, an hour with 400 MB of load: (50 + 400 / n) must come near 150.
    let looks = course(240, |at_s| if (3600.0..7200.0).contains(&at_s) { 450.0 } else { 50.0 });
    let outcome = simulate(&looks, &settings(150, 1, 20), None).unwrap();
    let counts: Vec<u32> = outcome.changes.iter().map(|it| it.replicas).collect();
    assert_eq!(counts[0], 1);
    assert_eq!(outcome.most, 4);
    assert_eq!(counts.last(), Some(&1));
    let down = outcome.changes.iter().find(|it| it.at_s > 7200.0).unwrap();
    assert!((300.0..=330.0).contains(&(down.at_s - 7200.0)), "{down:?}");
    assert_eq!(outcome.started, 3);
    let share = simulate(
        &looks,
        &Settings { target: Target::Utilization(0.5), ..settings(0, 1, 20) },
        Some(300_000_000),
    );
    assert_eq!(share.map(|it| it.changes), Ok(outcome.changes));
    let error = simulate(
        &looks,
        &Settings { target: Target::Utilization(0.5), ..settings(0, 1, 20) },
        None,
    );
    assert!(error.unwrap_err().contains("request=512Mi"));
    assert!(simulate(&[], &settings(1, 1, 2), None).is_err());
}

#[test]
fn the_vertical_request_is_a_percentile_of_peaks_with_a_margin() {
    // A flat service: the upper end of its bucket (at most 5 % above), and 15 %.
    let flat = vertical::recommend(&course(10 * 1440, |_| 1000.0));
    let request = flat.request as f64 / MB;
    assert!((1150.0..=1150.0 * 1.05).contains(&request), "{request}");
    assert_eq!(flat.restarts, 0);
    assert!(flat.lower <= flat.request && flat.request < flat.upper);
    // Twice as much from the sixth day on: nine of ten counts by weight are the new peaks after two days.
    let grown = vertical::recommend(&course(12 * 1440, |at_s| {
        if at_s > 5.0 * 86_400.0 { 2000.0 } else { 1000.0 }
    }));
    assert!((2300.0..=2300.0 * 1.05).contains(&(grown.request as f64 / MB)), "{grown:?}");
    assert!((1..=3).contains(&grown.restarts), "{grown:?}");
    // A small one gets the least.
    assert_eq!(vertical::recommend(&course(60, |_| 20.0)).request, 250 << 20);
    // A kill raises the sample by a fifth.
    let mut killed = course(2 * 1440, |_| 1000.0);
    killed[1500].replicas[0].oom_kills = 1;
    killed[1501..].iter_mut().for_each(|it| it.replicas[0].oom_kills = 1);
    let raised = vertical::recommend(&killed).request as f64 / MB;
    assert!((1200.0 * 1.15..=1200.0 * 1.15 * 1.05).contains(&raised), "{raised}");
}

#[test]
fn the_working_set_counts_where_replicas_are_alone_in_their_cgroups() {
    let replica = |others| Replica {
        pid: 1,
        started: 1,
        processes: 1,
        rss: Some(50),
        anon: None,
        swap: None,
        allocator: None,
        cgroup: Some(Group {
            path: "/a".into(),
            others,
            usage: Some(100),
            inactive_file: Some(30),
            limit: Some(500),
            limit_usage: Some(100),
            oom_kills: None,
        }),
    };
    let record = |others: &[u64]| Record {
        format: ebb_process::record::FORMAT,
        at: jiff::Timestamp::UNIX_EPOCH,
        every_s: 60.0,
        target: "app".into(),
        replicas: others.iter().map(|others| replica(*others)).collect(),
    };
    for (others, expected) in [([0, 0, 0], 70), ([0, 9, 0], 70), ([0, 9, 9], 50)] {
        let looks = looks(&[record(&others), record(&[])]);
        assert_eq!(looks.len(), 1, "nothing ran");
        assert!(looks[0].replicas.iter().all(|it| it.bytes == expected), "{others:?}");
    }
    assert_eq!(limit(&[record(&[0])]), Some(500));
}
