//! What a user names, as processes: a number, a name, a cgroup, a unit, a container.
//!
//! Used by `ebb why` and its kin.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use procfs::process::{Process, Stat, all_processes};

use super::cgroup::Place;
use super::environ;
use super::tree::{Tree, shown_by};
use crate::snapshot::{Target, TargetKind};

/// The processes of a requested target.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The requested target.
    pub target: Target,
    /// The processes that stand for it, without their descendants; or all of a cgroup.
    pub roots: Vec<i32>,
    /// The requested cgroup.
    pub cgroup: Option<Place>,
}

/// Why there are none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No process has this number.
    #[error("no process has the pid {0}")]
    Pid(i32),
    /// It has ended, and its parent has not collected it.
    #[error(
        "process {pid} ({name}) is a zombie: it has ended and has no memory; its parent {parent} has not reaped it"
    )]
    Zombie {
        /// Its number.
        pid: i32,
        /// The kernel's name of it.
        name: String,
        /// Its parent's number.
        parent: i32,
    },
    /// It is no program.
    #[error("{0} ({1}) is a kernel thread: it has no memory of its own")]
    KernelThread(i32, String),
    /// Nothing has this name; some processes have names that are like it.
    #[error("no process, unit, container or cgroup is called {0}{like}", like = like(.1))]
    Name(String, Vec<String>),
    /// Several cgroups answer to it.
    #[error("{0} matches several cgroups: {1}")]
    Several(String, String),
    /// Its processes are in several cgroups, where one is wanted.
    #[error("the processes called {asked} are in several cgroups: {groups}; name one pid or one of these paths")]
    Spread {
        /// The requested name.
        asked: String,
        /// Each cgroup with its processes.
        groups: String,
    },
    /// The cgroup has no process.
    #[error("no process is in the cgroup {0}")]
    Empty(String),
}

/// Finds the requested target. A number is a pid; a name with a slash is a cgroup; else processes of
/// that name are taken, then a cgroup that is called so.
pub fn resolve(asked: &str) -> Result<Resolved, NotFound> {
    let found = |kind, roots, cgroup| Resolved { target: Target { asked: asked.to_owned(), kind }, roots, cgroup };
    if let Ok(pid) = asked.parse::<i32>() {
        let stat = Process::new(pid).and_then(|process| process.stat());
        let stat = stat.map_err(|_| NotFound::Pid(pid))?;
        return match without_memory(&stat, shown_by(pid).is_some()) {
            Some(why) => Err(why),
            None => Ok(found(TargetKind::Pid, vec![pid], None)),
        };
    }
    let named = if asked.contains('/') { Vec::new() } else { of_name(asked) };
    if !named.is_empty() {
        return Ok(found(TargetKind::Name, named, None));
    }
    let mut places = Place::find(asked);
    match (places.pop(), places.len()) {
        (None, _) => Err(NotFound::Name(asked.to_owned(), nearest(asked))),
        (Some(place), 0) => match place.pids() {
            pids if pids.is_empty() => Err(NotFound::Empty(place.path())),
            pids => Ok(found(TargetKind::Cgroup, pids, Some(place))),
        },
        (Some(last), _) => {
            let paths: Vec<String> = places.iter().chain([&last]).map(Place::path).collect();
            Err(NotFound::Several(asked.to_owned(), paths.join(", ")))
        }
    }
}

/// [`resolve`] for a caller that reports the figures of one cgroup.
pub fn resolve_in_one_cgroup(asked: &str) -> Result<Resolved, NotFound> {
    let resolved = resolve(asked)?;
    if resolved.cgroup.is_some() {
        return Ok(resolved);
    }
    let groups = groups(&resolved.roots);
    if groups.len() < 2 {
        return Ok(resolved);
    }
    let described = groups.iter().map(|(place, roots)| {
        let path = place.as_ref().map_or_else(|| "no cgroup".to_owned(), Place::path);
        let pids: Vec<String> = roots.iter().map(i32::to_string).collect();
        format!("{path} (pid {})", pids.join(", "))
    });
    Err(NotFound::Spread { asked: asked.to_owned(), groups: described.collect::<Vec<_>>().join(", ") })
}

/// The same processes by the cgroups of the first of each: one entry for each cgroup.
pub fn by_cgroup(resolved: Resolved) -> Vec<Resolved> {
    if resolved.roots.len() < 2 || resolved.cgroup.is_some() {
        return vec![resolved];
    }
    let of = |(_, roots)| Resolved { roots, ..resolved.clone() };
    groups(&resolved.roots).into_iter().map(of).collect()
}

/// The cgroups of these processes, each with its own.
fn groups(roots: &[i32]) -> Vec<(Option<Place>, Vec<i32>)> {
    let mut groups: Vec<(Option<Place>, Vec<i32>)> = Vec::new();
    for &root in roots {
        let place = Place::of(root);
        match groups.iter_mut().find(|(known, _)| *known == place) {
            Some((_, roots)) => roots.push(root),
            None => groups.push((place, vec![root])),
        }
    }
    groups
}

/// Why a process has no memory that can be looked at; `goes_on` where a thread of it runs.
fn without_memory(stat: &Stat, goes_on: bool) -> Option<NotFound> {
    const KERNEL_THREAD: u32 = 0x0020_0000;
    if stat.flags & KERNEL_THREAD != 0 {
        Some(NotFound::KernelThread(stat.pid, stat.comm.clone()))
    } else if !goes_on && matches!(stat.state, 'Z' | 'X') {
        Some(NotFound::Zombie { pid: stat.pid, name: stat.comm.clone(), parent: stat.ppid })
    } else {
        None
    }
}

/// The process that waits for us, if we look for it: as little a target as we are.
static SUPERVISOR: AtomicI32 = AtomicI32::new(0);

/// Says which process waits for this one.
pub fn set_supervisor(pid: i32) {
    // Relaxed: set before anything is looked at.
    SUPERVISOR.store(pid, Ordering::Relaxed);
}

fn is_own(pid: i32) -> bool {
    pid == std::process::id() as i32 || pid == SUPERVISOR.load(Ordering::Relaxed)
}

/// The names of running processes that are like this one, the nearest first.
fn nearest(asked: &str) -> Vec<String> {
    const LEAST_LIKE: f64 = 0.8;
    const MOST: usize = 3;
    if asked.contains('/') {
        return Vec::new();
    }
    let mut names: Vec<(f64, String)> = Vec::new();
    for process in all_processes().into_iter().flatten().flatten() {
        let Some(stat) = process.stat().ok().filter(|it| !is_own(it.pid)) else {
            continue;
        };
        let script = environ::command_line(process.pid).into_iter().nth(1);
        let script = script.filter(|word| !word.starts_with('-'));
        let script = script.and_then(|word| {
            let name = Path::new(&word).file_name()?;
            Some(name.to_string_lossy().into_owned())
        });
        for name in [Some(stat.comm), script].into_iter().flatten() {
            let like = strsim::jaro_winkler(asked, &name);
            if like >= LEAST_LIKE && !names.iter().any(|(_, known)| *known == name) {
                names.push((like, name));
            }
        }
    }
    names.sort_by(|left, right| right.0.total_cmp(&left.0));
    names.into_iter().map(|(_, name)| name).take(MOST).collect()
}

fn like(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!("; running are {}", names.join(", ")),
    }
}

/// The processes of that name whose ancestors do not have it, without ourselves.
fn of_name(name: &str) -> Vec<i32> {
    let mut parents: std::collections::BTreeMap<i32, i32> = std::collections::BTreeMap::new();
    let mut matching = BTreeSet::new();
    for process in all_processes().into_iter().flatten().flatten() {
        let Ok(stat) = process.stat() else { continue };
        parents.insert(process.pid, stat.ppid);
        if !is_own(process.pid) && is_called(&process, &stat.comm, name) && shown_by(process.pid).is_some() {
            matching.insert(process.pid);
        }
    }
    let has_ancestor = |pid: i32| {
        let mut next = parents.get(&pid).copied();
        // Parents come before children, but numbers are used again: no more steps than processes.
        for _ in 0..parents.len() {
            match next {
                Some(parent) if matching.contains(&parent) => return true,
                Some(parent) => next = parents.get(&parent).copied(),
                None => return false,
            }
        }
        false
    };
    matching.iter().copied().filter(|&pid| !has_ancestor(pid)).collect()
}

/// By the kernel's name (15 bytes of it) or by the file that is executed.
fn is_called(process: &Process, comm: &str, name: &str) -> bool {
    comm == name
        || process.exe().is_ok_and(|exe| exe.file_name() == Path::new(name).file_name())
        // A script is called by its own name, whatever interprets it.
        || environ::command_line(process.pid)
            .iter()
            .take(2)
            .filter(|word| !word.starts_with('-'))
            .any(|word| Path::new(word).file_name() == Path::new(name).file_name())
}

/// The processes to look at: the roots and, unless told otherwise, their descendants. One whose first thread has ended
/// goes by the number of another.
pub fn processes(resolved: &Resolved, with_children: bool) -> Vec<i32> {
    let mut seen = BTreeSet::new();
    resolved
        .roots
        .iter()
        .flat_map(|&root| match (with_children, Tree::of(root)) {
            (true, Ok(tree)) => tree.pids().to_vec(),
            _ => vec![root],
        })
        .filter(|&pid| !is_own(pid) && seen.insert(pid))
        .map(|pid| shown_by(pid).unwrap_or(pid))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_nobody_has_and_a_name_that_nobody_has_are_told_apart() {
        assert_eq!(resolve("4194999").unwrap_err(), NotFound::Pid(4_194_999));
        let error = resolve("no-such-service-anywhere").unwrap_err();
        assert!(matches!(error, NotFound::Name(..)), "{error}");
        let error = resolve("/no/such/cgroup").unwrap_err();
        assert!(matches!(error, NotFound::Name(..)), "{error}");
    }

    #[test]
    fn a_kernel_thread_and_a_zombie_are_named_as_what_they_are() {
        // Of Linux 6.18: kthreadd, and a shell whose parent sleeps.
        let kthreadd = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 12 0 0 20 0 1 0 3 0 0 18446744073709551615 0 0 0 0 0 0 0 \
                        2147483647 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let zombie = "77 (sh) Z 76 76 1 0 -1 4227148 95 0 0 0 0 0 0 0 20 0 1 0 900 0 0 18446744073709551615 0 0 0 0 0 0 0 0 \
                      0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let of = |text: &str, goes_on| {
            let stat = <Stat as procfs::FromRead>::from_read(text.as_bytes()).unwrap();
            without_memory(&stat, goes_on).map(|why| why.to_string())
        };
        assert_eq!(of(kthreadd, true).as_deref(), Some("2 (kthreadd) is a kernel thread: it has no memory of its own"));
        let zombies = of(zombie, false).unwrap();
        assert!(zombies.starts_with("process 77 (sh) is a zombie: "), "{zombies}");
        assert!(zombies.contains("its parent 76"), "{zombies}");
        assert_eq!(of(zombie, true), None, "another thread of it goes on");
    }

    #[test]
    fn a_process_is_found_by_number_and_by_name_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("named-{}", std::process::id());
        let program = folder.path().join(&name);
        // By another process: one that is started from here meanwhile would have it open for writing.
        let copied = std::process::Command::new("cp").arg("/bin/sh").arg(&program).status();
        assert!(copied.unwrap().success());
        let mut child = std::process::Command::new(&program)
            .args(["-c", "echo ready; read line"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        use std::io::BufRead;
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = child.id() as i32;
        let by_name = resolve(&name).unwrap();
        assert_eq!((by_name.target.kind, by_name.roots.clone()), (TargetKind::Name, vec![pid]));
        let by_number = resolve(&pid.to_string()).unwrap();
        assert_eq!(by_number.target.kind, TargetKind::Pid);
        assert_eq!(processes(&by_number, true), [pid]);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
