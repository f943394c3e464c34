//! The processes of a target in groups: workers that are alike together, one that differs alone.

use std::collections::BTreeMap;

use super::findings::LEAST_BYTES;
use super::ledger;
use ebb_process::snapshot::{Process, Snapshot};

/// A process differs from its like by this part of their median, and by [`LEAST_BYTES`].
const DIFFERS: f64 = 0.25;

/// Processes of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The kernel's name of them.
    pub name: String,
    /// Pids of the processes.
    pub pids: Vec<i32>,
    /// Proportional memory of the smallest.
    pub least: u64,
    /// Proportional memory of the largest.
    pub most: u64,
    /// Bytes that they have freed and hold, together.
    pub held: u64,
    /// Whether it is one that differs from several of its name.
    pub differs: bool,
}

/// All groups: first the processes that differ, then the largest groups.
pub fn groups(snapshot: &Snapshot) -> Vec<Group> {
    let mut names: BTreeMap<&str, Vec<Group>> = BTreeMap::new();
    for process in &snapshot.processes {
        let alone = alone(process, snapshot);
        names.entry(&process.name).or_default().push(alone);
    }
    let mut groups: Vec<Group> = names.into_values().flat_map(merged).collect();
    groups.sort_by_key(|group| {
        let sum = group.most.saturating_mul(group.pids.len() as u64);
        (!group.differs, std::cmp::Reverse(sum))
    });
    groups
}

fn alone(process: &Process, snapshot: &Snapshot) -> Group {
    let ledger = ledger::of(&Snapshot {
        processes: vec![process.clone()],
        cgroup: None,
        missing: Vec::new(),
        ebb_version: String::new(),
        taken: String::new(),
        target: snapshot.target.clone(),
        ..*snapshot
    });
    Group {
        name: process.name.clone(),
        pids: vec![process.pid],
        least: ledger.total,
        most: ledger.total,
        held: ledger.held(),
        differs: false,
    }
}

/// Processes of one name: those near their median as one group.
fn merged(mut all: Vec<Group>) -> Vec<Group> {
    all.sort_by_key(|one| one.most);
    let median = all[all.len() / 2].most;
    let far = |one: &Group| {
        let distance = one.most.abs_diff(median);
        distance >= LEAST_BYTES && distance as f64 >= DIFFERS * median as f64
    };
    let several = all.len() > 2;
    let (mut apart, near): (Vec<Group>, Vec<Group>) = all.into_iter().partition(far);
    for one in &mut apart {
        one.differs = several;
    }
    let near = near.into_iter().reduce(|mut all, one| {
        all.pids.extend(one.pids);
        all.least = all.least.min(one.least);
        all.most = all.most.max(one.most);
        all.held += one.held;
        all
    });
    apart.into_iter().chain(near).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_process::example;
    use ebb_process::snapshot::Status;

    fn process(pid: i32, name: &str, mb: u64) -> Process {
        Process {
            pid,
            name: name.into(),
            status: Status { rss: Some(mb * 1_000_000), ..Status::default() },
            ..Process::default()
        }
    }

    #[test]
    fn workers_that_are_alike_are_one_group_and_the_one_that_differs_is_named() {
        let snapshot = example::snapshot(vec![
            process(1, "gunicorn", 30),
            process(2, "gunicorn", 40),
            process(3, "gunicorn", 41),
            process(4, "gunicorn", 320),
            process(5, "gunicorn", 42),
            process(6, "sh", 2),
        ]);
        let groups = groups(&snapshot);
        let said: Vec<_> =
            groups.iter().map(|it| (it.pids.len(), it.name.as_str(), it.differs)).collect();
        assert_eq!(said, [(1, "gunicorn", true), (4, "gunicorn", false), (1, "sh", false)]);
        assert_eq!(groups[0].pids, [4]);
        assert_eq!((groups[1].least, groups[1].most), (30_000_000, 42_000_000));
    }

    #[test]
    fn of_two_neither_is_said_to_differ() {
        let two = vec![process(1, "a", 20), process(2, "a", 200)];
        let groups = groups(&example::snapshot(two));
        assert_eq!(groups.len(), 2);
        assert!(groups.iter().all(|group| !group.differs));
    }
}
