//! The processes and cgroups of this machine as of the last tick, with what looks found of them.
//!
//! [`Node::tick`] reads one line of each process and the files of each cgroup; [`Node::next`] says which heap to read, [`Node::look`]
//! reads it. A subject takes a few kilobytes whatever its size, and is forgotten when it is gone. Nothing here waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ebb_allocators::Allocator;
use ebb_process::cgroup::Place;
use ebb_process::environ;
use ebb_process::patience::{ANSWERS_WITHIN, unless_stuck};
use ebb_process::snapshot::{Cgroup, Missing};
use ebb_statistics::slope::{Slope, floors, slope};
use nix::sys::resource::{UsageWho, getrusage};
use procfs::process::{ProcState, Process as Proc, all_processes};
use procfs::{Current, MemoryPressure};

use crate::census::{self, Found, Identity};
use crate::figures::{Figures, Seen};
use crate::look::{Manner, Observer};
use crate::schedule::{Candidate, Clock, Key, Next, Schedule, Skip};

/// The kernel's flag of its own threads (PF_KTHREAD).
const KERNEL_THREAD: u32 = 0x0020_0000;
/// Threads of the kernel are not read again for so many ticks.
const TICKS_OF_THREADS: u64 = 4;
/// Live bytes of so many looks are kept: 40 hours of them, ten minutes apart.
const MOST_POINTS: usize = 240;
/// Looks have to cover this part of a cgroup's resident memory for its heap figures to be told.
const COVERED: f64 = 0.8;
/// A process with this part of a cgroup's live bytes that ends begins the slope anew.
const LEAVES: f64 = 0.1;

/// How a node is watched.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most processor time, as a share of one core.
    pub budget: f64,
    /// Where the cgroup hierarchy is mounted, if not where this process's mounts say.
    pub cgroups: Option<PathBuf>,
}

/// What can be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A process.
    Process(Key),
    /// A cgroup, by its path below the mount.
    Group(String),
}

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number and start.
    pub key: Key,
    /// Its parent's number.
    pub parent: i32,
    /// The kernel's name of it.
    pub name: String,
    /// Resident memory at the last tick.
    pub rss: u64,
    /// Its cgroup's path below the mount.
    pub group: Arc<str>,
    /// What the last look found.
    pub figures: Option<Figures>,
    seen: Option<Seen>,
    /// When a look was last tried, the memory then, what it cost.
    tried: Option<(Duration, u64, Duration)>,
}

/// A cgroup with processes. A container with cgroups inside is one.
#[derive(Clone, Debug)]
pub struct Group {
    /// What it is called.
    pub identity: Identity,
    /// Its processes.
    pub processes: Vec<Key>,
    /// The sum of their resident memory: shared pages count once for each.
    pub rss: u64,
    /// The part of `rss` of processes that were not looked at.
    pub unseen: u64,
    /// What its files say; absent of the root, which is the whole machine.
    pub cgroup: Option<Cgroup>,
    /// The sum of the last looks at its processes; absent until they cover 80 % of its resident memory.
    pub figures: Option<Figures>,
    /// The slope of its live bytes; absent until there are enough looks.
    pub slope: Option<Slope>,
    /// Seconds and live bytes.
    points: VecDeque<(f64, f64)>,
}

/// The machine.
#[derive(Debug)]
pub struct Node {
    options: Options,
    observer: Observer,
    schedule: Schedule,
    processes: BTreeMap<i32, Process>,
    groups: BTreeMap<Arc<str>, Group>,
    kernel_threads: BTreeSet<i32>,
    ticks: u64,
    looks: u64,
    skips: BTreeMap<Skip, u64>,
}

impl Clock {
    /// The clocks of this machine and this process.
    pub fn now() -> Self {
        let at = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
        let used = getrusage(UsageWho::RUSAGE_SELF);
        let time = |it: nix::sys::time::TimeVal| {
            Duration::from_secs(it.tv_sec().unsigned_abs()) + Duration::from_micros(it.tv_usec().unsigned_abs())
        };
        Self {
            at: at.map(Duration::from).unwrap_or_default(),
            cpu: used.map(|it| time(it.user_time()) + time(it.system_time())).unwrap_or_default(),
            memory_wait: MemoryPressure::current().ok().map(|pressure| f64::from(pressure.some.avg10) / 100.0),
        }
    }
}

impl Node {
    /// Knows nothing before the first tick.
    pub fn new(options: Options) -> Self {
        Self {
            schedule: Schedule::new(options.budget),
            options,
            observer: Observer::default(),
            processes: BTreeMap::new(),
            groups: BTreeMap::new(),
            kernel_threads: BTreeSet::new(),
            ticks: 0,
            looks: 0,
            skips: BTreeMap::new(),
        }
    }

    /// The processes, by number.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    /// The cgroups with processes, by path.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// One process.
    pub fn process(&self, key: Key) -> Option<&Process> {
        self.processes.get(&key.pid).filter(|process| process.key == key)
    }

    /// One cgroup, by its path below the mount.
    pub fn group(&self, path: &str) -> Option<&Group> {
        self.groups.get(path)
    }

    /// Looks so far.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// How often a process that was due was not looked at, by reason.
    pub fn skips(&self, reason: Skip) -> u64 {
        self.skips.get(&reason).copied().unwrap_or(0)
    }

    /// Finds who is there, and reads the cheap figures.
    pub fn tick(&mut self, now: &Clock) {
        self.schedule.advance(now);
        if self.ticks.is_multiple_of(TICKS_OF_THREADS) {
            self.kernel_threads.clear();
        }
        self.ticks += 1;
        let mut before = std::mem::take(&mut self.processes);
        let mut groups = std::mem::take(&mut self.groups);
        let mut ended = Vec::new();
        for (path, found) in found(&self.options) {
            let path: Arc<str> = path.into();
            let mut keys = Vec::new();
            for &pid in &found.pids {
                if self.kernel_threads.contains(&pid) {
                    continue;
                }
                match read(pid, &path) {
                    Read::Process(mut process) => {
                        if let Some(same) = before.remove(&pid) {
                            process.resumes(same).unwrap_or_else(|other| ended.push(*other));
                        }
                        keys.push(process.key);
                        self.processes.insert(pid, *process);
                    }
                    Read::KernelThread => {
                        self.kernel_threads.insert(pid);
                    }
                    Read::Gone => {}
                }
            }
            if !keys.is_empty() {
                let earlier = groups.remove(&path);
                self.groups.insert(path, group(found, keys, earlier));
            }
        }
        ended.extend(before.into_values());
        ended.into_iter().for_each(|process| self.ends(process));
        let paths: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        paths.iter().for_each(|path| self.sum(path, false));
    }

    /// Which process to look at now.
    pub fn next(&mut self, now: &Clock) -> Next {
        self.schedule.advance(now);
        let candidates = self.processes.values().map(|process| Candidate {
            key: process.key,
            rss: process.rss,
            last: process.tried,
        });
        let (next, too_large) = self.schedule.pick(candidates, now);
        for key in too_large {
            self.skip(Skip::TooLarge);
            if let Some(process) = self.processes.get_mut(&key.pid) {
                // Not again for ten minutes.
                let cost = process.tried.map_or(Duration::ZERO, |(_, _, cost)| cost);
                process.tried = Some((now.at, process.rss, cost));
            }
        }
        if let Next::Wait(reason) = next {
            self.skip(reason);
        }
        next
    }

    /// Reads the heap of a process, or those of all processes of a cgroup, the largest first. Fails where none could be read.
    pub fn look(&mut self, subject: &Subject) -> Result<(), Skip> {
        let keys = match subject {
            Subject::Process(key) => vec![*key],
            Subject::Group(path) => {
                let group = self.groups.get(path.as_str()).ok_or(Skip::Gone)?;
                let mut keys = group.processes.clone();
                let rss = |key: &Key| self.process(*key).map_or(0, |process| process.rss);
                keys.sort_by_key(|key| std::cmp::Reverse(rss(key)));
                keys
            }
        };
        let looks: Vec<Result<(), Skip>> = keys.into_iter().map(|key| self.look_at(key)).collect();
        looks.iter().find(|it| it.is_ok()).or(looks.first()).copied().unwrap_or(Err(Skip::Gone))
    }

    fn look_at(&mut self, key: Key) -> Result<(), Skip> {
        let before = Clock::now();
        let manner = Manner::Gentle(self.sharers(key));
        let (read, mut missing) = self.observer.one(key.pid, manner);
        let now = Clock::now();
        let cost = now.cpu.saturating_sub(before.cpu);
        self.looks += 1;
        let Some(process) = self.processes.get_mut(&key.pid).filter(|it| it.key == key) else {
            return Err(self.skip(Skip::Gone));
        };
        process.tried = Some((now.at, process.rss, cost));
        self.schedule.learn(process.rss, cost);
        let Some(facts) = read.filter(|it| it.started_ticks == key.started_ticks) else {
            return Err(self.skip(Skip::Gone));
        };
        let in_charge = in_charge(key.pid, facts.allocator.name.as_deref());
        missing.retain(|it| it.pid == Some(key.pid));
        let outcome = outcome(facts.heap.is_some(), &missing);
        let seen = Seen::new(now.at, facts, missing, in_charge);
        process.figures = Figures::of(&[&seen], None);
        process.seen = Some(seen);
        let path = Arc::clone(&process.group);
        self.sum(&path, true);
        self.point(&path, now.at);
        outcome.map_err(|reason| self.skip(reason))
    }

    /// How many processes have the pages that this one shares: those of its name in its cgroup, as workers are.
    fn sharers(&self, key: Key) -> u64 {
        let Some(process) = self.process(key) else { return 1 };
        let is_like = |it: &&Process| it.group == process.group && it.name == process.name;
        self.processes.values().filter(is_like).count() as u64
    }

    fn skip(&mut self, reason: Skip) -> Skip {
        *self.skips.entry(reason).or_default() += 1;
        reason
    }

    /// Forgets a process. Where much of a cgroup's live bytes is gone with it, the slope begins anew.
    fn ends(&mut self, ended: Process) {
        self.observer.forget(ended.key.pid);
        let Some(group) = self.groups.get_mut(&ended.group) else { return };
        let live = ended.seen.as_ref().and_then(Seen::live).unwrap_or(0) as f64;
        if group.points.back().is_some_and(|(_, all)| live >= LEAVES * all) {
            group.points.clear();
            group.slope = None;
        }
    }

    /// Sums a cgroup up from its processes; the figures of looks only where one is new or a process is gone.
    fn sum(&mut self, path: &Arc<str>, has_new: bool) {
        let Some(group) = self.groups.get_mut(path) else { return };
        let pids = group.processes.iter().map(|key| key.pid);
        let processes: Vec<&Process> = pids.filter_map(|pid| self.processes.get(&pid)).collect();
        let looks: Vec<&Seen> = processes.iter().filter_map(|it| it.seen.as_ref()).collect();
        let unseen = processes.iter().filter(|it| it.seen.is_none()).map(|it| it.rss);
        group.rss = processes.iter().map(|it| it.rss).sum();
        group.unseen = unseen.sum();
        let covered = (group.rss - group.unseen) as f64 >= COVERED * group.rss as f64;
        if !covered {
            group.figures = None;
        } else if has_new || group.figures.is_none() {
            group.figures = Figures::of(&looks, group.cgroup.as_ref());
        }
    }

    /// Keeps the live bytes of a cgroup.
    fn point(&mut self, path: &Arc<str>, at: Duration) {
        let Some(group) = self.groups.get_mut(path) else { return };
        let Some(live) = group.figures.as_ref().and_then(|figures| figures.live) else { return };
        if group.points.len() == MOST_POINTS {
            group.points.pop_front();
        }
        group.points.push_back((at.as_secs_f64(), live as f64));
        group.slope = slope(&floors(group.points.make_contiguous()));
    }
}

/// The cgroups with processes; where no hierarchy is mounted, all processes in one.
fn found(options: &Options) -> BTreeMap<String, Found> {
    let groups = census::groups(options.cgroups.as_deref());
    if !groups.is_empty() {
        return groups;
    }
    let all = all_processes().into_iter().flatten().flatten();
    let root = PathBuf::from("/");
    let place = Place { version: 2, mount: root.clone(), folder: root, cpu: None };
    let pids = all.map(|process| process.pid).collect();
    [("/".to_owned(), Found { identity: Identity::of_path("/"), place, pids })].into()
}

fn group(found: Found, keys: Vec<Key>, earlier: Option<Group>) -> Group {
    let cgroup = (!found.place.is_root()).then(|| {
        let pids = keys.iter().map(|key| key.pid).collect();
        Cgroup { pids, ..found.place.figures() }
    });
    let mut group = Group {
        identity: found.identity,
        processes: keys,
        rss: 0,
        unseen: 0,
        cgroup,
        figures: None,
        slope: None,
        points: VecDeque::new(),
    };
    if let Some(earlier) = earlier {
        group.figures = earlier.figures.filter(|_| earlier.processes == group.processes);
        (group.slope, group.points) = (earlier.slope, earlier.points);
    }
    group
}

enum Read {
    Process(Box<Process>),
    KernelThread,
    Gone,
}

impl Process {
    /// Takes over what looks found of the same process; a process that had only its number is returned.
    fn resumes(&mut self, before: Self) -> Result<(), Box<Self>> {
        if before.key != self.key {
            return Err(Box::new(before));
        }
        (self.figures, self.seen, self.tried) = (before.figures, before.seen, before.tried);
        Ok(())
    }
}

/// The cheap figures of a process.
fn read(pid: i32, group: &Arc<str>) -> Read {
    let Ok(stat) = Proc::new(pid).and_then(|process| process.stat()) else {
        return Read::Gone;
    };
    if stat.flags & KERNEL_THREAD != 0 {
        return Read::KernelThread;
    }
    if matches!(stat.state(), Ok(ProcState::Zombie | ProcState::Dead)) {
        return Read::Gone;
    }
    let key = Key { pid, started_ticks: stat.starttime };
    Read::Process(Box::new(Process {
        key,
        parent: stat.ppid,
        name: stat.comm.replace(char::is_control, "\u{fffd}"),
        rss: stat.rss * procfs::page_size(),
        group: Arc::clone(group),
        figures: None,
        seen: None,
        tried: None,
    }))
}

/// Whether the allocator in the `LD_PRELOAD` of `pid` serves its `malloc`; without one there, true where the allocator is known.
fn in_charge(pid: i32, serves: Option<&str>) -> Option<bool> {
    let variables = unless_stuck(ANSWERS_WITHIN, move || environ::at_start(pid).ok()).flatten()?;
    let preload = variables.get(OsStr::new("LD_PRELOAD")).map(|value| value.to_string_lossy());
    let wanted = preload
        .as_deref()
        .unwrap_or_default()
        .split([':', ' '])
        .find_map(|path| Allocator::from_file_name(path.rsplit('/').next().unwrap_or_default()));
    match (wanted, serves) {
        (Some(wanted), Some(serves)) => Some(wanted.name() == serves),
        (None, Some(_)) => Some(true),
        (_, None) => None,
    }
}

/// Why the heap was not read.
fn outcome(has_heap: bool, missing: &[Missing]) -> Result<(), Skip> {
    let heap = missing.iter().find(|it| it.what == "heap" || it.what == "mappings");
    match heap {
        Some(it) if !has_heap && it.why.contains("did not answer") => Err(Skip::Stuck),
        Some(it) if !has_heap && it.remedy.is_some() => Err(Skip::NoRight),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn node() -> Node {
        Node::new(Options { budget: 1.0, cgroups: None })
    }

    #[test]
    fn a_process_is_there_with_figures_after_a_look_and_gone_when_it_ended() {
        let hold = "x = bytearray(40 << 20); print(1, flush=True); input()";
        let mut child = Command::new("python3")
            .args(["-c", hold])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let pid = child.id().cast_signed();
        let mut node = node();
        node.tick(&Clock::now());
        let find = |node: &Node| node.processes().find(|it| it.key.pid == pid).cloned();
        let process = find(&node).unwrap();
        assert!(process.rss > 40 << 20 && process.figures.is_none(), "{process:?}");
        node.look(&Subject::Process(process.key)).unwrap();
        let figures = find(&node).unwrap().figures.unwrap();
        assert!(figures.live > Some(40 << 20), "{figures:?}");
        assert_eq!(figures.allocator.as_deref(), Some("glibc"));
        assert_eq!((figures.in_charge, node.looks()), (Some(true), 1));
        assert!(node.group(&process.group).unwrap().processes.contains(&process.key));
        node.tick(&Clock::now());
        assert!(find(&node).unwrap().figures.is_some(), "kept over a tick");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(node.look(&Subject::Process(process.key)), Err(Skip::Gone));
        node.tick(&Clock::now());
        assert!(find(&node).is_none());
        assert_eq!(node.skips(Skip::Gone), 1);
    }

    #[test]
    fn the_preloaded_allocator_that_does_not_serve_is_not_in_charge() {
        let preload = "/x/libjemalloc.so.2";
        let mut child = Command::new("sleep").arg("60").env("LD_PRELOAD", preload).spawn().unwrap();
        let pid = child.id().cast_signed();
        while Proc::new(pid).and_then(|it| it.stat()).unwrap().comm != "sleep" {
            std::thread::yield_now();
        }
        assert_eq!(in_charge(pid, Some("glibc")), Some(false));
        assert_eq!(in_charge(pid, Some("jemalloc")), Some(true));
        assert_eq!(in_charge(pid, None), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(in_charge(pid, Some("glibc")), None, "it ended");
    }
}
