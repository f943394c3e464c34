//! Made-up recordings with daily waves, noise that lasts for hours, and restarts: what is found, and what is not.

use super::*;
use ebb_process::record::{FORMAT, Group};

const MB: f64 = 1e6;
/// A Sunday evening, so that periods begin within a day.
const BEGIN_S: f64 = 1_795_640_000.0;
const EVERY_S: f64 = 300.0;

fn replica(pid: i32, rss: f64) -> Replica {
    Replica {
        pid,
        started: pid as u64,
        processes: 1,
        rss: Some(rss as u64),
        anon: None,
        swap: None,
        allocator: Some("glibc".into()),
        cgroup: None,
    }
}

fn record(at_s: f64, replicas: Vec<Replica>) -> Record {
    Record {
        format: FORMAT,
        at: Timestamp::from_millisecond((at_s * 1e3) as i64).unwrap(),
        every_s: EVERY_S,
        target: "app".into(),
        replicas,
    }
}

/// A service with a floor of 400 MB, which load raises by up to 160 MB every day. A part of the noise (2 % of the
/// floor) stays for hours; a restart every two days or so lets memory grow anew within the hour.
struct Service {
    random: fastrand::Rng,
    noise: f64,
    phase: f64,
    pid: i32,
    age_s: f64,
    now_s: f64,
}

impl Service {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let phase = random.f64();
        Self { random, noise: 0.0, phase, pid: 1, age_s: 1e9, now_s: BEGIN_S }
    }

    /// The next `hours`, with a floor of `level` times the usual one.
    fn run(&mut self, hours: f64, level: f64) -> Vec<Record> {
        let end = self.now_s + hours * HOUR;
        let stays = (-EVERY_S / (3.0 * HOUR)).exp();
        let mut records = Vec::new();
        while self.now_s < end {
            let normal = (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0;
            self.noise = stays * self.noise + (1.0 - stays * stays).sqrt() * 8.0 * normal;
            if self.random.f64() < EVERY_S / (2.0 * DAY) {
                (self.pid, self.age_s) = (self.pid + 1, 0.0);
            }
            let of_day = std::f64::consts::TAU * (self.now_s / DAY + self.phase);
            let load = 80.0 * (1.0 + of_day.sin()) + 20.0 * self.random.f64();
            let warm = 1.0 - 0.5 * (-self.age_s / 900.0).exp();
            let memory = (400.0 * level + load) * warm + self.noise;
            records.push(record(self.now_s, vec![replica(self.pid, memory * MB)]));
            self.now_s += EVERY_S;
            self.age_s += EVERY_S;
        }
        records
    }
}

/// Comparisons of 100 services, whose floors change by `change`.
fn comparisons(hours: [f64; 2], change: f64) -> Vec<Comparison> {
    let one = |seed| {
        let mut service = Service::new(seed);
        let before = service.run(hours[0], 1.0);
        let after = service.run(hours[1], 1.0 + change);
        compare(&before, &after).unwrap()
    };
    (0..100).map(one).collect()
}

fn floor(comparison: &Comparison) -> &Level {
    comparison.levels.iter().find(|level| level.figure == Figure::Floor).unwrap()
}

/// A week before and after a deploy.
const WEEKS: [f64; 2] = [168.0, 168.0];

#[test]
fn a_floor_that_changes_by_5_percent_among_daily_waves_is_found_with_its_interval() {
    for change in [0.05, -0.05] {
        let all = comparisons(WEEKS, change);
        let found = all.iter().filter(|it| {
            let level = floor(it);
            level.is_real() && level.change.signum() == change.signum()
        });
        let found = found.count();
        let holds = all.iter().filter(|it| {
            let (low, high) = floor(it).interval.unwrap();
            (low..=high).contains(&(change * 400.0 * MB))
        });
        let holds = holds.count();
        println!("{change}: found {found}, holds {holds}");
        assert!(found >= 95, "{found} of 100 found");
        assert!(holds >= 93, "{holds} of 100 intervals have the true change");
    }
}

#[test]
fn without_a_change_none_is_reported_in_95_of_100_recordings() {
    for hours in [WEEKS, [72.0, 72.0], [168.0, 17.0], [72.0, 17.0], [48.0, 120.0], [24.0, 24.0]] {
        let all = comparisons(hours, 0.0);
        let told = all.iter().filter(|it| it.levels.iter().any(Level::is_real)).count();
        println!("{hours:?}: {told}");
        assert!(told <= 5, "{hours:?}: {told} of 100 report a change");
        assert!(all.iter().all(|it| it.same_hours && it.sustained_s.is_none() || it.levels.iter().any(Level::is_real)));
    }
}

#[test]
fn a_drop_that_lasts_is_sustained_and_one_that_ends_is_not() {
    let mut service = Service::new(1);
    let before = service.run(72.0, 1.4);
    let mut after = service.run(17.0, 0.6);
    let lasts = compare(&before, &after).unwrap();
    let share = lasts.levels[0].share(lasts.levels[0].change);
    println!("{}", lasts.sentence);
    assert!((-0.57..=-0.4).contains(&share), "{share}");
    assert!(lasts.sentence.contains("% lower") && lasts.sentence.contains("sustained over 17 h"), "{}", lasts.sentence);
    let until = seconds(&after);
    after.extend(service.run(6.0, 1.4));
    let ends = compare(&before, &after).unwrap();
    let sustained = ends.sustained_s.unwrap();
    assert!((until - 2.0 * HOUR..=until + 2.0 * HOUR).contains(&sustained), "{sustained}");
    assert!(ends.sentence.contains("but only for the first 1"), "{}", ends.sentence);
}

#[test]
fn restarts_kills_replicas_and_the_limit_are_counted() {
    let with_group = |pid, path: &str, kills, usage: f64| Replica {
        cgroup: Some(Group {
            path: path.into(),
            others: 0,
            usage: Some((usage * MB) as u64),
            inactive_file: Some(20_000_000),
            limit: Some(500_000_000),
            limit_usage: Some((usage * MB) as u64),
            oom_kills: Some(kills),
        }),
        ..replica(pid, usage * MB)
    };
    // At each time: replicas as (pid, cgroup, kills, MB).
    type At = &'static [(i32, &'static str, u64, f64)];
    let course: [At; 9] = [
        &[(1, "/a", 2, 400.0)],
        // A second replica is no restart.
        &[(1, "/a", 2, 480.0), (2, "/b", 0, 300.0)],
        // The first was killed and came back in the same cgroup: 480 MB less files is above 90 % of 500 MB.
        &[(3, "/a", 3, 300.0), (2, "/b", 0, 480.0)],
        // It ended, and the next came in a cgroup of its own.
        &[(2, "/b", 0, 300.0)],
        &[(2, "/b", 0, 300.0), (4, "/c", 1, 300.0)],
        // Scaled down, an hour later up again.
        &[(2, "/b", 0, 300.0)],
        &[],
        &[(5, "/c", 1, 300.0)],
        // The cgroup was made anew: its counter begins at 0.
        &[(6, "/c", 0, 300.0)],
    ];
    let times = [0.0, 300.0, 600.0, 900.0, 1200.0, 4800.0, 5100.0, 8700.0, 9000.0];
    let records: Vec<Record> = course
        .iter()
        .zip(times)
        .map(|(replicas, at)| {
            let of = |&(pid, path, kills, usage): &(i32, &str, u64, f64)| with_group(pid, path, kills, usage);
            record(BEGIN_S + at, replicas.iter().map(of).collect())
        })
        .collect();
    let period = period(&records, HOUR, Some(24));
    assert_eq!(period.oom_kills, Some(2), "one in /a, one in /c before it was seen");
    assert_eq!(period.restarts, 3, "3 for 1, 4 for 3, 6 for 5");
    assert_eq!((period.most_replicas, period.records), (2, 9));
    assert_eq!(period.near_limit, Some(2.0 / 8.0));
    assert_eq!(period.absent_s, EVERY_S);
    let without = self::period(&[record(BEGIN_S, vec![replica(1, MB)])], HOUR, None);
    assert_eq!((without.oom_kills, without.near_limit), (None, None));
}

#[test]
fn a_drift_is_that_of_the_longest_life() {
    let mut service = Service::new(3);
    let mut records = service.run(24.0 * 14.0, 1.0);
    let begin = records[0].at_s();
    for record in &mut records {
        // One process for all the time but the last day.
        let days = (record.at_s() - begin) / DAY;
        let replica = &mut record.replicas[0];
        let rise = if days < 13.0 { 10.0 * days } else { 0.0 };
        (replica.pid, replica.started) = if days < 13.0 { (1, 1) } else { (2, 2) };
        replica.rss = replica.rss.map(|rss| rss + (rise * MB) as u64);
    }
    let drift = period(&records, HOUR, Some(24)).drift.unwrap();
    assert!(drift.low > 5.0 * MB && drift.high < 15.0 * MB, "{drift:?}");
    assert!((drift.low..=drift.high).contains(&(10.0 * MB)), "{drift:?}");
    assert!((drift.life_s / DAY - 13.0).abs() < 0.1);
}

#[test]
fn what_speaks_against_the_figures_is_said() {
    let mut service = Service::new(4);
    let (night, gap) = (service.run(8.0, 1.0), service.run(4.0, 1.0));
    let day = service.run(8.0, 1.0);
    let other_hours = compare(&night, &day).unwrap();
    assert!(!other_hours.same_hours);
    assert!(other_hours.cautions[0].contains("too few hours of the day in common"));
    let short = compare(&gap[..24], &gap[24..]).unwrap();
    assert!(short.cautions[0].contains("shorter than 6 hours"), "{:?}", short.cautions);
    assert!(short.window_s < HOUR);
    let mut with_gap: Vec<Record> = service.run(24.0, 1.0);
    with_gap.drain(100..200);
    with_gap[50].replicas.clear();
    with_gap.iter_mut().flat_map(|it| &mut it.replicas).take(20).for_each(|it| it.allocator = Some("ebbmalloc".into()));
    let more = compare(&service.run(24.0, 1.0), &with_gap).unwrap();
    for expected in ["35 % of the time has no records", "nothing ran for about 5 min", "glibc, ebbmalloc"] {
        assert!(more.cautions.iter().any(|it| it.contains(expected)), "{expected}: {:?}", more.cautions);
    }
    assert_eq!(compare(&[], &day), None);
    let one = compare(&night[..1], &day[..2]).unwrap();
    assert!(one.sentence.contains("Too few records"), "{}", one.sentence);
}
