//! A process and all its descendants, and what they use together.
//!
//! Used by trials, which sample a service from readiness to its end. A process that vanishes while
//! it is read is left out; a figure that one living process of the tree does not show is `None` for
//! the whole tree, because a sum with a part missing is a wrong number.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::PathBuf;

use procfs::process::{Process, Stat};
use procfs::{ProcError, ProcResult};

/// The living processes of a tree at one moment, the first one in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pids: Vec<i32>,
}

/// What a tree uses at one moment. Memory is in bytes, CPU time in seconds since the processes
/// started, with an error of one clock tick (10 ms) a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Resident memory: the sum over the processes, so shared pages count once for each.
    pub rss: Option<u64>,
    /// Proportional share: a page shared by n processes counts 1/n for each. Needs the right to
    /// read `smaps_rollup`, which a process that changed its user does not give.
    pub pss: Option<u64>,
    /// Resident anonymous memory: heap, stacks, private data; no files, no shared memory.
    pub anon: Option<u64>,
    /// CPU time in user mode, including that of descendants that ended and were waited for.
    pub cpu_user: Option<f64>,
    /// CPU time in the kernel, counted likewise.
    pub cpu_sys: Option<f64>,
    /// Page faults that needed no disk, counted likewise.
    pub faults: Option<u64>,
    /// Processes that were alive, zombies not counted.
    pub processes: usize,
    /// The anonymous memory of each.
    pub held: Vec<Held>,
}

/// The anonymous memory of one process, with what tells it from another that has its number, and from the program
/// that it was before an `exec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub started_ticks: u64,
    /// Where its first stack begins, chosen anew by `exec`; 0 where we may not know.
    pub stack: u64,
    /// Resident anonymous memory.
    pub anon: Option<u64>,
}

/// What one process shows.
#[derive(Clone, Copy, Debug)]
struct Share {
    rss: Option<u64>,
    pss: Option<u64>,
    held: Held,
    cpu_user: f64,
    cpu_sys: f64,
    faults: u64,
    zombie: bool,
}

impl Tree {
    /// The process `pid` and its descendants. Fails where `pid` itself is gone.
    ///
    /// Children are taken from the kernel's lists of every thread and, because those may miss some
    /// while processes end, from the parents that all processes name. A descendant whose parent
    /// ended belongs to init or to the nearest subreaper: a caller that wants to follow it makes
    /// itself a subreaper and asks for its own tree.
    pub fn of(pid: i32) -> io::Result<Self> {
        if !fs::exists(format!("/proc/{pid}"))? {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has ended")));
        }
        let mut children = listed_by_parent()?;
        let mut pids = vec![pid];
        let mut seen = BTreeSet::from([pid]);
        let mut next = 0;
        while let Some(&parent) = pids.get(next) {
            next += 1;
            let mut found = children.remove(&parent).unwrap_or_default();
            found.extend(listed_by_kernel(parent));
            pids.extend(found.into_iter().filter(|&child| seen.insert(child)));
        }
        Ok(Self { pids })
    }

    /// Processes that belong together without one that all descend from, as those of a cgroup.
    pub fn of_pids(pids: Vec<i32>) -> Self {
        Self { pids }
    }

    /// The processes, the first one in front, parents before their children.
    pub fn pids(&self) -> &[i32] {
        &self.pids
    }

    /// Processor time of the tree, that of ended children that were waited for included. Cheaper than a
    /// sample: no memory is looked at.
    pub fn cpu_s(&self) -> f64 {
        let ticks = procfs::ticks_per_second() as f64;
        let stats = self.pids.iter().filter_map(|&pid| Process::new(pid).and_then(|process| process.stat()).ok());
        stats.map(|stat| (stat.utime + stat.stime) as f64 / ticks + (stat.cutime + stat.cstime) as f64 / ticks).sum()
    }

    /// What the tree uses now.
    pub fn sample(&self) -> Sample {
        sum(self.pids.iter().filter_map(|&pid| read(pid).ok()))
    }
}

/// By which number `/proc` shows the memory of process `pid`: its own, or, where its first thread has ended
/// (`pthread_exit` in `main`) and others go on, that of the first that does. Nothing where all have ended.
pub fn shown_by(pid: i32) -> Option<i32> {
    let process = Process::new(pid).ok()?;
    let stat = process.stat().ok()?;
    Some(as_shown(process, &stat).ok()??.pid())
}

/// The same of a process that is open and whose state was read.
fn as_shown(process: Process, stat: &Stat) -> ProcResult<Option<Process>> {
    let goes_on = |stat: &Stat| !matches!(stat.state, 'Z' | 'X');
    if goes_on(stat) {
        return Ok(Some(process));
    }
    let mut threads = process.tasks()?.flatten();
    let other = threads.find(|thread| thread.stat().is_ok_and(|stat| goes_on(&stat)));
    other.map(|thread| Process::new(thread.tid)).transpose()
}

/// What tells one program in one process from the next: when the process started (clock ticks since
/// boot) and the file it executes, or its name in brackets where the file is closed to us. Nothing
/// where the process is gone or a zombie.
pub fn identity(pid: i32) -> Option<(u64, PathBuf)> {
    let process = Process::new(pid).ok()?;
    let stat = process.stat().ok()?;
    let program = match as_shown(process, &stat).ok()??.exe() {
        Ok(program) => program,
        Err(ProcError::PermissionDenied(_)) => PathBuf::from(format!("[{}]", stat.comm)),
        Err(_) => return None,
    };
    Some((stat.starttime, program))
}

/// The children of every process, by the parent that each names.
fn listed_by_parent() -> io::Result<HashMap<i32, Vec<i32>>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // Most likely it ended since the folder was listed.
        let Ok(stat) = Process::new(pid).and_then(|process| process.stat()) else {
            continue;
        };
        children.entry(stat.ppid).or_default().push(pid);
    }
    Ok(children)
}

/// The children that the kernel lists for the threads of `pid`; none where it has no such lists.
fn listed_by_kernel(pid: i32) -> Vec<i32> {
    let Ok(tasks) = Process::new(pid).and_then(|process| process.tasks()) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| task.children().ok())
        .flatten()
        .filter_map(|child| i32::try_from(child).ok())
        .collect()
}

fn read(pid: i32) -> ProcResult<Share> {
    let process = Process::new(pid)?;
    let stat = process.stat()?;
    let ticks = procfs::ticks_per_second() as f64;
    // Waited-for descendants are in the parent's c-times, so each of them counts exactly once.
    let user = stat.utime as f64 + stat.cutime as f64;
    let system = stat.stime as f64 + stat.cstime as f64;
    let shown = as_shown(process, &stat)?;
    let (rss, pss, anon) = match &shown {
        Some(shown) => memory(shown)?,
        None => (Some(0), Some(0), Some(0)),
    };
    Ok(Share {
        rss,
        pss,
        held: Held { pid, started_ticks: stat.starttime, stack: stat.startstack, anon },
        cpu_user: user / ticks,
        cpu_sys: system / ticks,
        faults: stat.minflt + stat.cminflt,
        zombie: shown.is_none(),
    })
}

type Memory = (Option<u64>, Option<u64>, Option<u64>);

/// RSS, PSS and anonymous memory, from one reading where that is allowed.
fn memory(process: &Process) -> ProcResult<Memory> {
    match process.smaps_rollup() {
        Ok(rollup) => {
            let Some(map) = rollup.memory_map_rollup.into_iter().next() else {
                // A process that is just ending has no mapping any more.
                return Err(ProcError::NotFound(None));
            };
            let field = |name: &str| map.extension.map.get(name).copied();
            Ok((field("Rss"), field("Pss"), field("Anonymous")))
        }
        Err(ProcError::NotFound(path)) => Err(ProcError::NotFound(path)),
        // No right to the mappings, or a kernel before 4.14: the counters in `status` are open to all.
        Err(_) => {
            let status = process.status()?;
            if status.vmrss.is_none() {
                // It ended since its state was read: what has no memory any more has no line for it.
                return Err(ProcError::NotFound(None));
            }
            let bytes = |kib: Option<u64>| kib.map(|kib| kib * 1024);
            Ok((bytes(status.vmrss), None, bytes(status.rssanon)))
        }
    }
}

/// The figures of a tree from those of its processes.
fn sum(shares: impl Iterator<Item = Share>) -> Sample {
    let shares: Vec<Share> = shares.collect();
    if shares.is_empty() {
        return Sample::default();
    }
    let total = |field: fn(&Share) -> Option<u64>| shares.iter().map(field).sum::<Option<u64>>();
    Sample {
        rss: total(|share| share.rss),
        pss: total(|share| share.pss),
        anon: total(|share| share.held.anon),
        cpu_user: Some(shares.iter().map(|share| share.cpu_user).sum()),
        cpu_sys: Some(shares.iter().map(|share| share.cpu_sys).sum()),
        faults: Some(shares.iter().map(|share| share.faults).sum()),
        processes: shares.iter().filter(|share| !share.zombie).count(),
        held: shares.iter().filter(|share| !share.zombie).map(|share| share.held).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(rss: Option<u64>, pss: Option<u64>) -> Share {
        Share {
            rss,
            pss,
            held: Held { pid: 7, started_ticks: 100, stack: 0x7ffc_0000, anon: rss },
            cpu_user: 0.25,
            cpu_sys: 0.5,
            faults: 7,
            zombie: false,
        }
    }

    #[test]
    fn a_missing_part_makes_the_sum_missing() {
        let both = sum([share(Some(10), Some(5)), share(Some(20), None)].into_iter());
        assert_eq!(both.rss, Some(30));
        assert_eq!(both.pss, None);
        assert_eq!((both.cpu_user, both.cpu_sys), (Some(0.5), Some(1.0)));
        assert_eq!(both.faults, Some(14));
        assert_eq!(both.processes, 2);
    }

    #[test]
    fn a_tree_that_is_gone_has_no_figures() {
        assert_eq!(sum(std::iter::empty()), Sample::default());
    }

    #[test]
    fn a_zombie_uses_no_memory_but_its_time_counts() {
        let zombie = Share { zombie: true, rss: Some(0), pss: Some(0), ..share(None, None) };
        let tree = sum([share(Some(8), Some(8)), zombie].into_iter());
        assert_eq!((tree.rss, tree.processes), (Some(8), 1));
        assert_eq!(tree.held, [share(Some(8), None).held]);
        assert_eq!(tree.cpu_user, Some(0.5));
    }
}
