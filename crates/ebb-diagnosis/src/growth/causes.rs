//! Events that two looks show without a file: restarts, new processes, OOM kills.

use std::collections::BTreeMap;

use crate::facts::growth::Event;
use ebb_process::snapshot::Snapshot;

/// The processes and the OOM kills at one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Pid and start of each process, and its name.
    processes: BTreeMap<(i32, u64), String>,
    oom_kills: Option<u64>,
}

impl Standing {
    /// From processes with pid, start in ticks and name, and the OOM kills of their cgroup.
    pub fn new(processes: impl IntoIterator<Item = ((i32, u64), String)>, oom_kills: Option<u64>) -> Self {
        Self { processes: processes.into_iter().collect(), oom_kills }
    }

    /// Of a look in full.
    pub fn of(snapshot: &Snapshot) -> Self {
        let processes = snapshot.processes.iter();
        let processes = processes.map(|it| ((it.pid, it.started_ticks), it.name.clone()));
        let cgroup = snapshot.cgroup.as_ref();
        Self::new(processes, cgroup.and_then(|cgroup| cgroup.stress.oom_kills))
    }

    /// Becomes `now`, the next look, which was at `at_s`. Returns what happened in between.
    pub fn follow(&mut self, now: Self, at_s: f64) -> impl Iterator<Item = Event> + use<> {
        let labels = now.since(self);
        *self = now;
        labels.into_iter().map(move |label| Event { at_s, label })
    }

    /// Labels of what happened since `before`, each once. A look without a process shows nothing.
    pub fn since(&self, before: &Self) -> Vec<String> {
        if self.processes.is_empty() || before.processes.is_empty() {
            return Vec::new();
        }
        let kills = Option::zip(before.oom_kills, self.oom_kills);
        let mut labels = Vec::new();
        if kills.is_some_and(|(before, now)| now > before) {
            labels.push("OOM kill".to_owned());
        }
        let is_new = |it: &(i32, u64)| !before.processes.contains_key(it);
        if self.processes.keys().all(is_new) {
            labels.push("restart".to_owned());
            return labels;
        }
        let new = self.processes.iter().filter(|(it, _)| is_new(it));
        let mut names: Vec<String> = new.map(|(_, name)| format!("new process {name}")).collect();
        names.sort();
        names.dedup();
        labels.extend(names);
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_new_processes_and_oom_kills_are_seen() {
        let standing =
            |pids: &[(i32, u64)], kills| Standing::new(pids.iter().map(|&it| (it, "worker".to_owned())), kills);
        let before = standing(&[(1, 10), (2, 10)], Some(3));
        for (now, labels) in [
            (standing(&[(1, 10), (2, 10)], Some(3)), &[][..]),
            (standing(&[(1, 10)], Some(3)), &[]),
            (standing(&[(1, 10), (2, 99), (5, 99)], Some(3)), &["new process worker"]),
            // The same number, later.
            (standing(&[(1, 11)], Some(4)), &["OOM kill", "restart"]),
            // Another cgroup counts from 0, an unknown number is none.
            (standing(&[(7, 20)], Some(0)), &["restart"]),
            (standing(&[(7, 20)], None), &["restart"]),
            (standing(&[], Some(9)), &[]),
        ] {
            assert_eq!(now.since(&before), labels, "{now:?}");
        }
        assert!(before.since(&Standing::default()).is_empty(), "the first look");
    }
}
