//! One look at a target: from `ebb-process` and `ebb-allocators` to the facts. Used by the commands that look at one target, and by `node`.
//!
//! - `steady`: whether a process stayed the same while it was read.
//! - `malloc`: which file serves its `malloc`, and the allocator's name.
//! - `process`: one reading of a process.

mod malloc;
mod process;
mod steady;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use procfs::process::{ProcState, Process as Proc};

use ebb_process::cgroup::Place;
use ebb_process::look::{ALL_WITHIN, Depth};
use ebb_process::patience::{ANSWERS_WITHIN, unless_stuck};
use ebb_process::snapshot::{Cgroup, ENDED, FORMAT, Missing, Process, Snapshot};
use ebb_process::target::{self, Resolved};
pub(crate) use process::Manner;
use steady::{Identity, LEAST_BESIDE};

/// The name of what serves the `malloc` of process `pid`; `None` where that is not known.
pub fn allocator_of(pid: i32) -> Option<String> {
    malloc::in_charge(pid, None).ok()?.name
}

/// An allocator that takes longer to return pages is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// How often a process is read that changes meanwhile, and until when it is read once more.
const ATTEMPTS: u32 = 3;
const AGAIN_WITHIN: Duration = Duration::from_secs(5);

/// Looks at targets; remembers where counters lie between looks.
#[derive(Debug, Default)]
pub struct Observer(Arc<process::Known>);

impl Observer {
    /// Takes a snapshot. A process that ends while it is read is left out.
    pub fn look(&self, resolved: &Resolved, with_children: bool, depth: Depth) -> Snapshot {
        let mut missing = Vec::new();
        let now_s = since_boot_s();
        let roots = match &resolved.cgroup {
            // A cgroup's processes come and go.
            Some(place) => Resolved { roots: place.pids(), ..resolved.clone() },
            None => resolved.clone(),
        };
        let pids = target::processes(&roots, with_children && resolved.cgroup.is_none());
        let mut processes = self.all(&pids, depth, &mut missing);
        if depth == Depth::Settled {
            self.settle(&mut processes, &mut missing);
        }
        // At one time for all, so that ages can be compared.
        for process in &mut processes {
            let started_s = process.started_ticks as f64 / procfs::ticks_per_second() as f64;
            process.age_s = now_s.map(|now_s| (now_s - started_s).max(0.0));
        }
        let ended = roots.roots.iter().filter(|pid| Identity::of(**pid).is_none());
        missing.extend(ended.map(|&pid| lacks(pid, ENDED, "it ended while it was read".to_owned())));
        let place = resolved.cgroup.clone().or_else(|| Place::of(processes.first()?.pid));
        let cgroup = place.map(|place| with_others(place.read(), &processes));
        Snapshot {
            format: FORMAT,
            ebb_version: env!("CARGO_PKG_VERSION").to_owned(),
            taken: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            at_s: monotonic_s(),
            label: None,
            target: resolved.target.clone(),
            processes,
            cgroup,
            missing,
        }
    }

    /// One process and what could not be read of it; no process where it is gone.
    pub(crate) fn one(&self, pid: i32, manner: Manner) -> (Option<Process>, Vec<Missing>) {
        let mut missing = Vec::new();
        let process = self.patiently(pid, Depth::Heaps, manner, &mut missing);
        (process, missing)
    }

    pub(crate) fn forget(&self, pid: i32) {
        self.0.forget(pid);
    }

    /// Reads all of them; of late ones only the kernel's figures.
    fn all(&self, pids: &[i32], depth: Depth, missing: &mut Vec<Missing>) -> Vec<Process> {
        let began = Instant::now();
        let mut processes = Vec::new();
        for &pid in pids {
            let is_late = depth != Depth::Kernel && began.elapsed() > ALL_WITHIN;
            let depth = if is_late { Depth::Kernel } else { depth };
            let Some(process) = self.patiently(pid, depth, Manner::Exact, missing) else {
                continue;
            };
            processes.push(process);
            if is_late {
                let limit = ALL_WITHIN.as_secs();
                let why = format!("the processes before it took the {limit} s of a look");
                missing.push(lacks(pid, "heap", why));
            }
        }
        processes
    }

    /// Reads those again whose allocator returns much by itself within a moment, after that moment.
    fn settle(&self, processes: &mut Vec<Process>, missing: &mut Vec<Missing>) {
        let waits: Vec<(i32, Duration)> =
            processes.iter().filter_map(|process| Some((process.pid, returns_after(process)?))).collect();
        let Some(longest) = waits.iter().map(|(_, time)| *time).max() else { return };
        std::thread::sleep(longest);
        let waited = |of: i32| waits.iter().any(|(pid, _)| *pid == of);
        missing.retain(|it| !it.pid.is_some_and(waited));
        let all = std::mem::take(processes);
        processes.extend(all.into_iter().filter_map(|process| {
            if waited(process.pid) {
                self.patiently(process.pid, Depth::Objects, Manner::Exact, missing)
            } else {
                Some(process)
            }
        }));
    }

    /// [`Self::process`] on a thread of its own: of a process that does not answer only the kernel's figures are known.
    fn patiently(&self, pid: i32, depth: Depth, manner: Manner, missing: &mut Vec<Missing>) -> Option<Process> {
        let known = Self(Arc::clone(&self.0));
        let read = unless_stuck(ANSWERS_WITHIN, move || {
            let mut missing = Vec::new();
            (known.process(pid, depth, manner, &mut missing), missing)
        });
        let Some((process, mut found)) = read else {
            let process = unless_stuck(ANSWERS_WITHIN, move || process::figures(pid)).flatten()?;
            let limit = ANSWERS_WITHIN.as_secs();
            let why = format!("a page or a file of it did not answer within {limit} s");
            missing.push(lacks(pid, "heap", why));
            return Some(process);
        };
        missing.append(&mut found);
        process
    }

    /// The facts of one process; nothing where it is gone, a zombie, or a thread of the kernel. One that executes
    /// another program meanwhile, or whose mappings and heap are of different times, is read again.
    fn process(&self, pid: i32, depth: Depth, manner: Manner, missing: &mut Vec<Missing>) -> Option<Process> {
        let began = Instant::now();
        let mut before = Identity::of(pid)?;
        for attempt in 1.. {
            let mut read = process::read(pid, depth, manner, &self.0);
            // The figures of a process that ends are incomplete.
            let after = Identity::of(pid)?;
            let has_changed = read.as_ref().is_some_and(|(process, _)| steady::changed(process));
            let is_steady = after == before && !has_changed;
            if !is_steady && attempt < ATTEMPTS && began.elapsed() < AGAIN_WITHIN {
                before = after;
                continue;
            }
            if let Some((process, _)) = read.as_mut().filter(|_| !is_steady) {
                steady::put_in_doubt(process);
            }
            let (process, mut found) = read?;
            missing.append(&mut found);
            return Some(process);
        }
        None
    }
}

fn lacks(pid: i32, what: &str, why: String) -> Missing {
    Missing { pid: Some(pid), what: what.to_owned(), why, remedy: None }
}

/// When the allocator of `process` has returned pages that are worth waiting for; nothing for one that is stopped.
fn returns_after(process: &Process) -> Option<Duration> {
    let heap = process.heap.as_ref()?;
    let time = Duration::from_millis(heap.returns_within_ms?);
    let state = Proc::new(process.pid).and_then(|it| it.stat()).ok()?.state();
    let is_stopped = matches!(state, Ok(ProcState::Stopped | ProcState::Tracing));
    let is_worth_it = heap.trimmable >= LEAST_BESIDE && time <= LONGEST_WAIT && !is_stopped;
    is_worth_it.then_some(time)
}

/// Adds what the other processes of the cgroup use.
fn with_others(mut cgroup: Cgroup, processes: &[Process]) -> Cgroup {
    let ours: BTreeSet<i32> = processes.iter().map(|process| process.pid).collect();
    let others = cgroup.pids.iter().filter(|pid| !ours.contains(pid));
    // One that is gone uses nothing.
    let statuses = others.filter_map(|pid| Proc::new(*pid).and_then(|it| it.status()).ok());
    let with_memory = statuses.filter(|status| status.vmrss.is_some());
    cgroup.others_anon = with_memory.map(|status| Some(status.rssanon? * 1024)).sum();
    cgroup
}

/// What processes' start times are counted in.
fn since_boot_s() -> Option<f64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).ok()?;
    Some(Duration::from(now).as_secs_f64())
}

fn monotonic_s() -> f64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_or(0.0, |now| Duration::from(now).as_secs_f64())
}
