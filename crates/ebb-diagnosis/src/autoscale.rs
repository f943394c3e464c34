//! Replicas, restarts and requests that Kubernetes' autoscalers would have given a recorded service. Pure.
//!
//! Used by `ebb diff` and `ebb compare` with `--autoscale`.
//!
//! - `horizontal`: the rule of the HorizontalPodAutoscaler. KEDA's memory trigger creates one, so the rule is the same.
//! - `vertical`: the recommender and the updater of the VerticalPodAutoscaler.
//!
//! A recording has other numbers of replicas than the simulation. So memory is split: the lowest that a replica ever had stays
//! in each replica, and what is above is load, which all replicas share. What an allocator holds after a burst counts as
//! load as well.

mod horizontal;
mod vertical;

pub use horizontal::Horizontal;

use crate::facts::autoscale::{Look, Outcome, Scaled, Seen, Settings, Target};
use ebb_process::record::{Group, Record, Replica};

/// The looks of a recording; what could not be read is left out. Memory is the working set, as autoscalers see it, where most
/// replicas are alone in their cgroups, and else resident memory.
pub fn looks(records: &[Record]) -> Vec<Look> {
    let begin = records.first().map_or(0.0, Record::at_s);
    let replicas = || records.iter().flat_map(|record| &record.replicas);
    let is_alone = |replica: &&Replica| replica.cgroup.as_ref().is_some_and(|it| it.others == 0);
    let are_alone = 2 * replicas().filter(is_alone).count() > replicas().count();
    let seen = |replica: &Replica| {
        let group = replica.cgroup.as_ref();
        let working_set = |group: &Group| Some(group.usage?.saturating_sub(group.inactive_file?));
        Some(Seen {
            life: replica.life(),
            bytes: if are_alone { working_set(group?) } else { replica.rss }?,
            oom_kills: group.and_then(|it| it.oom_kills).unwrap_or(0),
        })
    };
    let look = |record: &Record| {
        let replicas: Vec<Seen> = record.replicas.iter().map(seen).collect::<Option<_>>()?;
        (!replicas.is_empty()).then(|| Look { at_s: record.at_s() - begin, replicas })
    };
    records.iter().filter_map(look).collect()
}

/// The lowest limit of the replicas of a recording.
pub fn limit(records: &[Record]) -> Option<u64> {
    let replicas = records.iter().flat_map(|record| &record.replicas);
    replicas.filter_map(|replica| replica.cgroup.as_ref()?.limit).min()
}

/// The memory that one replica is to have. `limit` is the request where the settings have none.
pub fn target_bytes(settings: &Settings, limit: Option<u64>) -> Result<f64, String> {
    match (settings.target, settings.request.or(limit)) {
        (Target::Bytes(bytes), _) => Ok(bytes as f64),
        (Target::Utilization(share), Some(request)) => Ok(share * request as f64),
        (Target::Utilization(_), None) => {
            Err("no memory limit is known: add request=512Mi, or give a target in bytes".to_owned())
        }
    }
}

/// Simulates; `limit` is the request where the settings have none.
pub fn simulate(looks: &[Look], settings: &Settings, limit: Option<u64>) -> Result<Outcome, String> {
    let target = target_bytes(settings, limit)?;
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else {
        return Err("no memory was recorded".to_owned());
    };
    let total = |look: &Look| look.replicas.iter().map(|it| it.bytes as f64).sum::<f64>();
    let mean = |look: &Look| total(look) / look.replicas.len() as f64;
    let base = looks.iter().map(mean).fold(f64::INFINITY, f64::min);
    let load = |look: &Look| total(look) - base * look.replicas.len() as f64;
    let mut horizontal = Horizontal::new(first.replicas.len() as u32, settings.min, settings.max);
    let mut changes = vec![Scaled { at_s: 0.0, replicas: horizontal.replicas() }];
    let (mut sum, mut started, mut most, mut steps) = (0.0, 0, horizontal.replicas(), 0);
    let mut next = 0;
    while horizontal::SYNC_S * f64::from(steps) <= last.at_s {
        let at_s = horizontal::SYNC_S * f64::from(steps);
        while looks.get(next + 1).is_some_and(|look| look.at_s <= at_s) {
            next += 1;
        }
        let before = horizontal.replicas();
        let of_one = base + load(&looks[next]) / f64::from(before);
        let now = horizontal.step(at_s, of_one, target);
        if now != before {
            changes.push(Scaled { at_s, replicas: now });
            started += now.saturating_sub(before);
            most = most.max(now);
        }
        sum += f64::from(now);
        steps += 1;
    }
    Ok(Outcome {
        target: target as u64,
        replicas: sum / f64::from(steps),
        most,
        started,
        changes,
        vertical: vertical::recommend(looks),
    })
}

#[cfg(test)]
mod tests {
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
        let share =
            simulate(&looks, &Settings { target: Target::Utilization(0.5), ..settings(0, 1, 20) }, Some(300_000_000));
        assert_eq!(share.map(|it| it.changes), Ok(outcome.changes));
        let error = simulate(&looks, &Settings { target: Target::Utilization(0.5), ..settings(0, 1, 20) }, None);
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
        let grown = vertical::recommend(&course(12 * 1440, |at_s| if at_s > 5.0 * 86_400.0 { 2000.0 } else { 1000.0 }));
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
}
