//! Replicas that come, end and are killed, by the records before and after.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ebb_process::record::{Record, Replica};

/// A process that begins so long before or after another one ended took its place. Kubernetes waits up to five minutes
/// before it starts a container again.
const TAKES_PLACE_WITHIN_S: f64 = 600.0;

/// What tells one process from the next.
type Life = (i32, u64);

fn lives(record: &Record) -> BTreeSet<Life> {
    record.replicas.iter().map(Replica::life).collect()
}

/// Processes that took the place of one that ended. Replicas that an autoscaler adds or removes do not count.
pub fn restarts(records: &[Record]) -> u64 {
    let (mut begun, mut ended) = (VecDeque::new(), VecDeque::new());
    let mut restarts = 0;
    let mut known = records.first().map(lives).unwrap_or_default();
    for record in records.iter().skip(1) {
        let (now, at) = (lives(record), record.at_s());
        begun.extend(now.difference(&known).map(|_| at));
        ended.extend(known.difference(&now).map(|_| at));
        for times in [&mut begun, &mut ended] {
            while times.front().is_some_and(|then| at - then > TAKES_PLACE_WITHIN_S) {
                times.pop_front();
            }
        }
        while !begun.is_empty() && !ended.is_empty() {
            begun.pop_front();
            ended.pop_front();
            restarts += 1;
        }
        known = now;
    }
    restarts
}

/// Processes that the kernel killed for memory; `None` where no cgroup counts them.
pub fn oom_kills(records: &[Record]) -> Option<u64> {
    let counters = |record: &Record| -> BTreeMap<String, u64> {
        let groups = record.replicas.iter().filter_map(|replica| replica.cgroup.as_ref());
        groups.filter_map(|group| Some((group.path.clone(), group.oom_kills?))).collect()
    };
    let mut known: Option<BTreeMap<String, u64>> = None;
    let mut kills = None;
    for record in records {
        let now = counters(record);
        if now.is_empty() {
            continue;
        }
        let kills = kills.get_or_insert(0);
        if let Some(known) = &mut known {
            for (path, count) in now {
                // A counter that fell is that of a new cgroup of the same name.
                let then = known.insert(path, count).filter(|then| *then <= count);
                *kills += count - then.unwrap_or(0);
            }
        } else {
            known = Some(now);
        }
    }
    kills
}

/// The replica that was there for the longest time, with the records from its first to its last.
pub fn longest(records: &[Record]) -> Option<(Life, &[Record])> {
    let mut spans: BTreeMap<Life, (usize, usize)> = BTreeMap::new();
    for (index, record) in records.iter().enumerate() {
        for life in lives(record) {
            spans.entry(life).or_insert((index, index)).1 = index;
        }
    }
    let (life, (first, last)) = spans.into_iter().max_by(|(_, left), (_, right)| {
        let length = |(first, last): &(usize, usize)| records[*last].at_s() - records[*first].at_s();
        length(left).total_cmp(&length(right))
    })?;
    Some((life, &records[first..=last]))
}
