//! A memory cgroup: what is charged to it, its limits, and the signs of a lack.
//!
//! Used by `ebb why` and its kin, for version 2 and version 1. A hierarchy is found by the mounts of
//! this process; a file that is not there is a figure that is absent, never 0.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::Process;

use crate::facts::snapshot::{Cgroup, CgroupParts, Stress};

/// Version 1 says "no limit" with the largest multiple of a page, which depends on the page's size.
const NO_LIMIT: u64 = 1 << 62;
/// More levels than any hierarchy has; a link that leads in circles ends there.
const MOST_LEVELS: usize = 64;

/// A cgroup in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1 or 2.
    pub version: u8,
    /// Where its hierarchy is mounted: the root that we see.
    pub mount: PathBuf,
    /// Its folder.
    pub folder: PathBuf,
    /// Its folder in the hierarchy of the `cpu` controller, where that is another one (version 1).
    pub cpu: Option<PathBuf>,
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    version: u8,
    /// The part of the hierarchy that is mounted.
    root: String,
    mount: PathBuf,
}

impl Place {
    /// The memory cgroup of a process.
    pub fn of(pid: i32) -> Option<Self> {
        let groups: Vec<(Vec<String>, String)> = Process::new(pid)
            .and_then(|process| process.cgroups())
            .ok()?
            .into_iter()
            .map(|group| (group.controllers, group.pathname))
            .collect();
        let path_for = |controller: &str| {
            groups
                .iter()
                .find(|(names, _)| names.iter().any(|name| name == controller))
                .map(|(_, path)| path.as_str())
        };
        let unified = groups
            .iter()
            .find(|(names, _)| names.iter().all(String::is_empty))
            .map(|(_, path)| path.as_str());
        let (hierarchy, path) = match (hierarchy("memory"), path_for("memory")) {
            (Some(hierarchy), Some(path)) => (hierarchy, path),
            _ => (unified_hierarchy()?, unified?),
        };
        let cpu = (hierarchy.version == 1)
            .then(|| Some(self::hierarchy("cpu")?.folder(path_for("cpu")?)))
            .flatten();
        Some(Self {
            version: hierarchy.version,
            folder: hierarchy.folder(path),
            mount: hierarchy.mount,
            cpu,
        })
    }

    /// The memory cgroup that a user named: by its folder, by its path below the mount, or by the name
    /// of a folder anywhere below (a unit, or a container's number, whole or its start).
    pub fn find(asked: &str) -> Vec<Self> {
        let Some(hierarchy) = hierarchy("memory").or_else(unified_hierarchy) else {
            return Vec::new();
        };
        let place = |folder: PathBuf| Self {
            version: hierarchy.version,
            mount: hierarchy.mount.clone(),
            cpu: (hierarchy.version == 1)
                .then(|| {
                    let below = folder.strip_prefix(&hierarchy.mount).ok()?;
                    let cpu = self::hierarchy("cpu")?.mount.join(below);
                    cpu.is_dir().then_some(cpu)
                })
                .flatten(),
            folder,
        };
        for folder in [
            PathBuf::from(asked),
            hierarchy.mount.join(asked.trim_start_matches('/')),
        ] {
            // A folder of the memory hierarchy, not just any.
            if asked.contains('/') && folder.join("cgroup.procs").exists() {
                let folder = fs::canonicalize(&folder).unwrap_or(folder);
                if folder.starts_with(&hierarchy.mount) {
                    return vec![place(folder)];
                }
            }
        }
        if asked.is_empty() || asked.contains('/') {
            return Vec::new();
        }
        let mut found = Vec::new();
        let mut folders = vec![hierarchy.mount.clone()];
        while let Some(folder) = folders.pop() {
            for below in folders_in(&folder) {
                let name = below.file_name().map(|name| name.to_string_lossy());
                if name.is_some_and(|name| answers_to(&name, asked)) {
                    found.push(place(below));
                } else {
                    folders.push(below);
                }
            }
        }
        found.sort_by(|left: &Self, right| left.folder.cmp(&right.folder));
        found
    }

    /// Its processes and those of the cgroups below.
    pub fn pids(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            // 0 is a process outside our namespace of pids.
            pids.extend(
                text.lines()
                    .filter_map(|line| line.parse::<i32>().ok())
                    .filter(|&pid| pid != 0),
            );
            folders.extend(folders_in(&folder));
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Whether this is the root that we see, which holds the whole machine (or container).
    pub fn is_root(&self) -> bool {
        self.folder == self.mount
    }

    /// Its path below the mount.
    pub fn path(&self) -> String {
        let below = self
            .folder
            .strip_prefix(&self.mount)
            .unwrap_or(&self.folder);
        format!("/{}", below.display())
    }

    /// Its figures. `others_anon` is left to the caller, who knows which processes are whose.
    pub fn read(&self) -> Cgroup {
        let mut cgroup = match self.version {
            1 => self.read_v1(),
            _ => self.read_v2(),
        };
        cgroup.path = self.path();
        cgroup.version = self.version;
        cgroup.pids = self.pids();
        if let Some((limit, folder)) = self.limit() {
            let below = folder.strip_prefix(&self.mount).unwrap_or(&folder);
            cgroup.limit = Some(limit);
            cgroup.limit_of = Some(format!("/{}", below.display()));
        }
        cgroup
    }

    fn read_v2(&self) -> Cgroup {
        let stat = table(&self.folder.join("memory.stat"));
        let part = |name: &str| stat.get(name).copied();
        let events = table(&self.folder.join("memory.events"));
        let cpu = table(&self.folder.join("cpu.stat"));
        let pressure = fs::read_to_string(self.folder.join("memory.pressure")).unwrap_or_default();
        Cgroup {
            usage: number(&self.folder.join("memory.current")),
            high: number(&self.folder.join("memory.high")),
            peak: number(&self.folder.join("memory.peak")),
            swap: number(&self.folder.join("memory.swap.current")),
            parts: CgroupParts {
                anon: part("anon"),
                file: part("file"),
                mapped: part("file_mapped"),
                shared: part("shmem"),
                inactive_file: part("inactive_file"),
                active_file: part("active_file"),
                kernel: part("kernel"),
                slab: part("slab"),
                slab_reclaimable: part("slab_reclaimable"),
                page_tables: part("pagetables"),
                kernel_stack: part("kernel_stack"),
                sockets: part("sock"),
            },
            stress: Stress {
                limit_hits: events.get("max").copied(),
                oom_kills: events.get("oom_kill").copied(),
                throttled_periods: cpu.get("nr_throttled").copied(),
                throttled_s: cpu.get("throttled_usec").map(|&us| us as f64 / 1e6),
                memory_some_60: average_60(&pressure, "some"),
                memory_full_60: average_60(&pressure, "full"),
            },
            ..Cgroup::default()
        }
    }

    fn read_v1(&self) -> Cgroup {
        let stat = table(&self.folder.join("memory.stat"));
        // Without use_hierarchy only the cgroup's own are there.
        let part = |name: &str| {
            stat.get(format!("total_{name}").as_str())
                .or_else(|| stat.get(name))
                .copied()
        };
        let usage = number(&self.folder.join("memory.usage_in_bytes"));
        let with_swap = number(&self.folder.join("memory.memsw.usage_in_bytes"));
        let oom = table(&self.folder.join("memory.oom_control"));
        let cpu = self
            .cpu
            .as_ref()
            .map(|cpu| table(&cpu.join("cpu.stat")))
            .unwrap_or_default();
        Cgroup {
            usage,
            peak: number(&self.folder.join("memory.max_usage_in_bytes")),
            swap: part("swap").or_else(|| Some(with_swap?.saturating_sub(usage?))),
            parts: CgroupParts {
                anon: part("rss"),
                file: part("cache"),
                mapped: part("mapped_file"),
                shared: part("shmem"),
                inactive_file: part("inactive_file"),
                active_file: part("active_file"),
                kernel: number(&self.folder.join("memory.kmem.usage_in_bytes")),
                sockets: number(&self.folder.join("memory.kmem.tcp.usage_in_bytes")),
                ..CgroupParts::default()
            },
            stress: Stress {
                limit_hits: number(&self.folder.join("memory.failcnt")),
                oom_kills: oom.get("oom_kill").copied(),
                throttled_periods: cpu.get("nr_throttled").copied(),
                throttled_s: cpu.get("throttled_time").map(|&ns| ns as f64 / 1e9),
                ..Stress::default()
            },
            ..Cgroup::default()
        }
    }

    /// Processes that were killed here for want of memory, ever.
    pub fn oom_kills(&self) -> Option<u64> {
        let file = match self.version {
            1 => "memory.oom_control",
            _ => "memory.events",
        };
        table(&self.folder.join(file)).get("oom_kill").copied()
    }

    /// Time for which the CPU quotas from here to the root held processes back, ever; `None` where there is
    /// no quota.
    pub fn throttled_s(&self) -> Option<f64> {
        let folder = match self.version {
            1 => self.cpu.as_ref()?,
            _ => &self.folder,
        };
        folder
            .ancestors()
            .take(MOST_LEVELS)
            .filter(|folder| has_cpu_quota(folder))
            .filter_map(|folder| {
                let stat = table(&folder.join("cpu.stat"));
                let version_2 = stat.get("throttled_usec").map(|&us| us as f64 / 1e6);
                version_2.or_else(|| Some(*stat.get("throttled_time")? as f64 / 1e9))
            })
            .reduce(|left, right| left + right)
    }

    /// The lowest memory limit from here to the root that we see.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.limit().map(|(limit, _)| limit)
    }

    /// The lowest limit from here to the root that we see, and whose it is.
    fn limit(&self) -> Option<(u64, PathBuf)> {
        let name = match self.version {
            1 => "memory.limit_in_bytes",
            _ => "memory.max",
        };
        self.folder
            .ancestors()
            .take(MOST_LEVELS)
            .take_while(|folder| folder.starts_with(&self.mount))
            .filter_map(|folder| {
                let limit = number(&folder.join(name)).filter(|&limit| limit < NO_LIMIT)?;
                Some((limit, folder.to_owned()))
            })
            .min_by_key(|(limit, _)| *limit)
    }
}

impl Hierarchy {
    /// The folder of the cgroup with this path, as `/proc/PID/cgroup` tells it. A path that leads out of
    /// what is mounted here is that of a process outside this container: the mount's root stands for it.
    fn folder(&self, path: &str) -> PathBuf {
        let below = match path.strip_prefix(self.root.trim_end_matches('/')) {
            Some(below) if !path.contains("..") => below.trim_start_matches('/'),
            _ => path.trim_start_matches('/'),
        };
        let folder = self.mount.join(below);
        if below.contains("..") || !folder.is_dir() {
            self.mount.clone()
        } else {
            folder
        }
    }
}

/// The mounted hierarchy of a version 1 controller.
fn hierarchy(controller: &str) -> Option<Hierarchy> {
    mounted(
        |kind, options| kind == "cgroup" && options.contains_key(controller),
        1,
    )
}

/// The mounted hierarchy of version 2, if it has the memory controller.
fn unified_hierarchy() -> Option<Hierarchy> {
    let found = mounted(|kind, _| kind == "cgroup2", 2)?;
    let controllers = fs::read_to_string(found.mount.join("cgroup.controllers")).ok()?;
    controllers
        .split_whitespace()
        .any(|name| name == "memory")
        .then_some(found)
}

fn mounted(
    is_it: impl Fn(&str, &HashMap<String, Option<String>>) -> bool,
    version: u8,
) -> Option<Hierarchy> {
    let mounts = Process::myself().ok()?.mountinfo().ok()?;
    mounts
        .into_iter()
        .find(|mount| is_it(&mount.fs_type, &mount.super_options))
        .map(|mount| Hierarchy {
            version,
            root: mount.root,
            mount: mount.mount_point,
        })
}

/// Whether a folder's name is that of the unit or container that was asked for: `nginx` and
/// `nginx.service`, `0123456789ab` and `docker-0123456789ab....scope`.
fn answers_to(folder: &str, asked: &str) -> bool {
    if folder == asked || folder.strip_suffix(".service") == Some(asked) {
        return true;
    }
    let is_id = asked.len() >= 12 && asked.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = folder.strip_suffix(".scope").unwrap_or(folder);
    let id = id.rsplit('-').next().unwrap_or(id);
    is_id && id.starts_with(asked)
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Of both versions; "no quota" is -1 and `max`, which are no such numbers.
fn has_cpu_quota(folder: &Path) -> bool {
    let max = fs::read_to_string(folder.join("cpu.max")).unwrap_or_default();
    let quota = max
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<u64>().ok());
    quota
        .or_else(|| number(&folder.join("cpu.cfs_quota_us")))
        .is_some()
}

/// A file with one number; `max` is no number.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A file of names and numbers, one a line.
fn table(path: &Path) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        })
        .collect()
}

/// The average of the last minute from a pressure file.
fn average_60(text: &str, line: &str) -> Option<f64> {
    let line = text.lines().find(|it| it.starts_with(line))?;
    let value = line
        .split(' ')
        .find_map(|word| word.strip_prefix("avg60="))?;
    value.parse().ok()
}

#[cfg(test)]
mod tests;
