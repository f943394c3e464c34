//! The processes of a target side by side: pools of workers with the one that differs, and groups for a short report.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::slice::from_ref;

use super::findings::LEAST_BYTES;
use super::ledger;
use crate::facts::diagnosis::Cause;
use crate::facts::workers::{Pool, Room, Worker};
use ebb_process::snapshot::{Cgroup, Process, Runtime, Snapshot};
use ebb_statistics::median;

/// From so many siblings on, one can differ from the rest.
const LEAST_SIBLINGS: usize = 4;
/// A worker differs if it exceeds the median by so many times the spread of its pool. Of 20,000 pools of normally
/// distributed workers one is named in 1.8 % with 4 workers, in 0.2 % with 12; at 5 times in 4.2 % and 1.5 %. A leak
/// passes any number in time.
const DIFFERS: f64 = 8.0;
/// And by this part of the median: in a pool whose workers are nearly equal the spread is next to nothing.
const LEAST_PART: f64 = 0.1;
/// Makes the median distance from the median the standard deviation of normally distributed values.
const TO_DEVIATION: f64 = 1.4826;

/// The pools, the largest first.
pub fn pools(snapshot: &Snapshot) -> Vec<Pool> {
    let mut siblings: BTreeMap<(i32, &str), Vec<&Process>> = BTreeMap::new();
    for process in &snapshot.processes {
        let program = process.program.as_ref().unwrap_or(&process.name);
        siblings.entry((process.parent, program)).or_default().push(process);
    }
    let several = siblings.into_iter().filter(|(_, all)| all.len() > 1);
    let mut pools: Vec<Pool> = several.map(|((parent, _), all)| pool(parent, &all, snapshot)).collect();
    pools.sort_by_key(|pool| Reverse(pool.workers.iter().map(|it| it.total).sum::<u64>()));
    pools
}

fn pool(parent: i32, processes: &[&Process], snapshot: &Snapshot) -> Pool {
    let mut workers: Vec<Worker> = processes.iter().copied().map(worker).collect();
    workers.sort_by_key(|worker| worker.pid);
    // Private bytes of some are not compared with all bytes of others.
    if workers.iter().any(|worker| worker.private.is_none()) {
        workers.iter_mut().for_each(|worker| worker.private = None);
    }
    let own = |worker: &Worker| Some(worker.own());
    let middle = middle(&workers, own).unwrap_or(0);
    let distance = |worker: &Worker| Some(worker.own().abs_diff(middle));
    let spread = TO_DEVIATION * self::middle(&workers, distance).unwrap_or(0) as f64;
    let least = (DIFFERS * spread).max(LEAST_PART * middle as f64).max(LEAST_BYTES as f64);
    let is_far = |worker: &&Worker| worker.own().saturating_sub(middle) as f64 >= least;
    let mut far: Vec<&Worker> = workers.iter().filter(is_far).collect();
    far.sort_by_key(|worker| Reverse(worker.own()));
    let outliers = far.iter().map(|worker| worker.pid).collect();
    let is_compared = workers.len() >= LEAST_SIBLINGS;
    Pool {
        name: processes.first().map_or_else(String::new, |first| first.name.clone()),
        parent,
        median: middle,
        spread: spread as u64,
        outliers: if is_compared { outliers } else { Vec::new() },
        room: snapshot.cgroup.as_ref().and_then(|cgroup| room(&workers, cgroup)),
        workers,
    }
}

/// The median of a figure; absent where a worker lacks it.
fn middle(workers: &[Worker], figure: impl Fn(&Worker) -> Option<u64>) -> Option<u64> {
    let values: Option<Vec<f64>> = workers.iter().map(|it| figure(it).map(|bytes| bytes as f64)).collect();
    median(&values?).map(|bytes| bytes as u64)
}

fn worker(process: &Process) -> Worker {
    let ledger = ledger::of(from_ref(process));
    let resident = process.status.rss;
    let private = process.private;
    let shared = resident.zip(private).map(|(all, own)| all.saturating_sub(own));
    let peak = process.status.peak.zip(shared).zip(private);
    let interpreter = match process.runtime {
        Some(Runtime::Cpython) => process.objects.as_ref().map(|_| ledger.bytes(Cause::Objects)),
        Some(_) => process.memory.as_ref().map(|_| ledger.bytes(Cause::Anonymous)),
        None => None,
    };
    let of_heap = |bytes: u64| process.heap.as_ref().map(|_| bytes);
    Worker {
        pid: process.pid,
        age_s: process.age_s,
        cpu_s: process.work.cpu_s,
        total: ledger.total,
        private,
        shared,
        live: of_heap(ledger.bytes(Cause::Live)),
        held: of_heap(ledger.held()),
        interpreter,
        peak: peak.map(|((peak, shared), private)| peak.saturating_sub(shared).max(private)),
    }
}

/// How many workers like these the limit of their cgroup holds.
fn room(workers: &[Worker], cgroup: &Cgroup) -> Option<Room> {
    let limit = cgroup.limit.filter(|&limit| limit > 0)?;
    let usage = cgroup.limit_usage.or(cgroup.usage)?;
    if !workers.iter().all(|worker| cgroup.pids.contains(&worker.pid)) {
        return None;
    }
    let private: u64 = workers.iter().map(|worker| worker.private).sum::<Option<u64>>()?;
    // Of an ancestor it is not known which files are whose.
    let is_own = cgroup.limit_of.as_ref().is_none_or(|of| *of == cgroup.path);
    let files = cgroup.parts.inactive_file.filter(|_| is_own).unwrap_or(0);
    let besides = usage.saturating_sub(private).saturating_sub(files);
    let each = middle(workers, |worker| worker.private)?;
    let floor = middle(workers, |it| Some(it.private?.saturating_sub(it.held?)))?;
    let peak = middle(workers, |worker| worker.peak)?;
    let fit = |bytes: u64| limit.saturating_sub(besides).checked_div(bytes);
    Some(Room { limit, besides, each, floor, peak, fit_at_floor: fit(floor)?, fit_at_peak: fit(peak)? })
}

/// What an outlier has more than the rest: the part with the largest excess over its median, and the excess.
pub fn excess(pool: &Pool, pid: i32) -> Option<(&'static str, u64)> {
    type Part = (&'static str, fn(&Worker) -> Option<u64>);
    const PARTS: [Part; 3] = [
        ("live", |worker| worker.live),
        ("freed and held", |worker| worker.held),
        ("in the interpreter's objects", |worker| worker.interpreter),
    ];
    let outlier = pool.workers.iter().find(|worker| worker.pid == pid)?;
    let parts = PARTS.iter().filter_map(|(name, figure)| {
        let median = middle(&pool.workers, figure)?;
        Some((*name, figure(outlier)?.saturating_sub(median)))
    });
    parts.max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > 0)
}

/// Processes that are alike, for a short report.
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
    /// Whether it is one that differs from its siblings.
    pub differs: bool,
}

/// All groups: first the processes that differ, then the largest groups. Siblings are a group, and so are processes of
/// one name that have few.
pub fn groups(snapshot: &Snapshot, pools: &[Pool]) -> Vec<Group> {
    let differs = |pid: i32| pools.iter().any(|pool| pool.outliers.contains(&pid));
    let of = |pid: i32| {
        let has = |pool: &&Pool| pool.workers.iter().any(|worker| worker.pid == pid);
        let large = pools.iter().filter(|pool| pool.workers.len() >= LEAST_SIBLINGS);
        large.into_iter().find(has).map(|pool| pool.parent)
    };
    let mut groups: BTreeMap<(&str, Option<i32>, Option<i32>), Group> = BTreeMap::new();
    for process in &snapshot.processes {
        let pid = process.pid;
        let known = pools.iter().flat_map(|pool| &pool.workers).find(|worker| worker.pid == pid);
        let total = known.map_or_else(|| ledger::of(from_ref(process)).total, |worker| worker.total);
        let key = (process.name.as_str(), of(pid), differs(pid).then_some(pid));
        let group = groups.entry(key).or_insert_with(|| Group {
            name: process.name.clone(),
            pids: Vec::new(),
            least: total,
            most: total,
            differs: differs(pid),
        });
        group.pids.push(pid);
        group.least = group.least.min(total);
        group.most = group.most.max(total);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| {
        let sum = group.most.saturating_mul(group.pids.len() as u64);
        (!group.differs, Reverse(sum))
    });
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_process::example;
    use ebb_process::snapshot::{Heap, Status};

    const MB: u64 = 1_000_000;

    /// A child of process 1; sizes in MB.
    fn process(pid: i32, name: &str, mb: u64) -> Process {
        Process {
            pid,
            parent: 1,
            name: name.into(),
            status: Status { rss: Some(mb * MB), ..Status::default() },
            ..Process::default()
        }
    }

    fn named(sizes: &[u64]) -> Vec<i32> {
        let pid = |at: usize| i32::try_from(at).unwrap() + 2;
        let each = sizes.iter().enumerate().map(|(at, mb)| process(pid(at), "gunicorn", *mb));
        let pools = pools(&example::snapshot(each.collect()));
        pools.into_iter().flat_map(|pool| pool.outliers).collect()
    }

    #[test]
    fn a_worker_far_above_its_siblings_is_named_and_spread_is_not() {
        for (sizes, expected) in [
            (&[40, 41, 42, 320][..], &[5][..]),
            (&[40, 41, 42, 43, 320, 44, 390, 45], &[8, 6]),
            // Below 16 MB, below a tenth, below eight times the spread, too few, smaller.
            (&[40, 40, 40, 40, 55], &[]),
            (&[1000, 1000, 1000, 1000, 1099], &[]),
            (&[100, 80, 120, 60, 140, 250], &[]),
            (&[40, 41, 320], &[]),
            (&[400, 400, 400, 400, 10], &[]),
        ] {
            assert_eq!(named(sizes), expected, "{sizes:?}");
        }
    }

    #[test]
    fn alike_workers_are_named_less_often_than_the_rule_says() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut named_in = |workers: usize| {
            let mut worker = || {
                // Close to a normal distribution: 1 GB with a deviation of 100 MB.
                let sum: f64 = (0..12).map(|_| random.f64()).sum();
                (1000.0 + 100.0 * (sum - 6.0)) as u64
            };
            let pools = (0..1000).map(|_| (0..workers).map(|_| worker()).collect::<Vec<_>>());
            pools.filter(|sizes| !named(sizes).is_empty()).count()
        };
        let (four, twelve) = (named_in(4), named_in(12));
        assert!(four <= 25 && twelve <= 6, "{four} and {twelve} of 1000");
    }

    #[test]
    fn siblings_are_a_group_and_the_one_that_differs_is_another() {
        let mut master = process(1, "gunicorn", 30);
        master.parent = 0;
        let workers = [40, 41, 320, 42].iter().zip(2..).map(|(mb, pid)| process(pid, "gunicorn", *mb));
        let all: Vec<Process> = std::iter::once(master).chain(workers).chain([process(9, "sh", 2)]).collect();
        let snapshot = example::snapshot(all);
        let groups = groups(&snapshot, &pools(&snapshot));
        let said: Vec<_> = groups.iter().map(|it| (it.pids.as_slice(), it.name.as_str(), it.differs)).collect();
        let expected: [(&[i32], &str, bool); 4] =
            [(&[4], "gunicorn", true), (&[2, 3, 5], "gunicorn", false), (&[1], "gunicorn", false), (&[9], "sh", false)];
        assert_eq!(said, expected);
        assert_eq!((groups[1].least, groups[1].most), (40 * MB, 42 * MB));
    }

    /// Ten workers of 30 MB of their own, 10 MB of which are freed, and 20 MB shared; the limit is 500 MB.
    fn limited(limit_of: &str) -> Snapshot {
        let workers = (2..12).map(|pid| Process {
            private: Some(30 * MB),
            status: Status { rss: Some(50 * MB), peak: Some(70 * MB), ..Status::default() },
            memory: Some(BTreeMap::from([(
                ebb_process::snapshot::Kind::Brk,
                ebb_process::snapshot::Usage { rss: 30 * MB, pss: 30 * MB, ..Default::default() },
            )])),
            heap: Some(Heap { live: 20 * MB, trimmable: 10 * MB, resident: 30 * MB, ..Heap::default() }),
            ..process(pid, "w", 50)
        });
        Snapshot {
            cgroup: Some(Cgroup {
                path: "/a".into(),
                limit: Some(500 * MB),
                limit_of: Some(limit_of.into()),
                limit_usage: Some(420 * MB),
                parts: ebb_process::snapshot::CgroupParts { inactive_file: Some(20 * MB), ..Default::default() },
                pids: (2..12).collect(),
                ..Cgroup::default()
            }),
            ..example::snapshot(workers.collect())
        }
    }

    #[test]
    fn how_many_fit_below_the_limit() {
        let room = |snapshot: &Snapshot| pools(snapshot)[0].room;
        let expected = Room {
            limit: 500 * MB,
            besides: 100 * MB,
            each: 30 * MB,
            floor: 20 * MB,
            peak: 50 * MB,
            fit_at_floor: 20,
            fit_at_peak: 8,
        };
        assert_eq!(room(&limited("/a")), Some(expected));
        // An ancestor's files are not ours to drop.
        assert_eq!(room(&limited("/")).map(|room| room.besides), Some(120 * MB));
        let mut without = limited("/a");
        without.processes[3].private = None;
        assert_eq!(room(&without), None);
        let mut elsewhere = limited("/a");
        elsewhere.cgroup.as_mut().unwrap().pids.pop();
        assert_eq!(room(&elsewhere), None);
    }

    #[test]
    fn the_excess_is_in_the_part_that_grew() {
        let mut snapshot = limited("/a");
        let heap = snapshot.processes[4].heap.as_mut().unwrap();
        heap.live += 80 * MB;
        heap.resident += 80 * MB;
        let usage = snapshot.processes[4].memory.as_mut().unwrap().values_mut().next().unwrap();
        usage.rss += 80 * MB;
        usage.pss += 80 * MB;
        snapshot.processes[4].private = Some(110 * MB);
        let pool = &pools(&snapshot)[0];
        assert_eq!(pool.outliers, [6]);
        assert_eq!(excess(pool, 6), Some(("live", 80 * MB)));
        assert_eq!(excess(pool, 2), None);
    }
}
