//! A memory cgroup: its memory, its limits, and signs of memory pressure.
//!
//! Used by the commands that diagnose a process, for cgroup versions 1 and 2. `place` finds the cgroup. A missing file
//! gives `None`, never 0.

// No library reads enough of this. Most of them create cgroups and read little:
// - cgroups-rs 0.5 and libcgroups 0.7 return 0 for a missing file or line. They do not read memory.events or the limits of
//   parent cgroups. libcgroups reads pressure, but depends on 40 more packages.
// - cgroups-fs 1.2 has version 1 only, without memory.stat. cgroupfs 0.9 has version 2 only.
// - procfs reads /proc/PID/cgroup, but no file of a cgroup.
// With any of them, more than half of this code would remain.

mod place;

pub use place::Place;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::snapshot::{Cgroup, CgroupParts, Stress};

/// Version 1 says "no limit" with the largest multiple of a page, which depends on the page's size.
const NO_LIMIT: u64 = 1 << 62;
/// More levels than any hierarchy has; a link that leads in circles ends there.
const MOST_LEVELS: usize = 64;

impl Place {
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
            cgroup.limit_usage = number(&folder.join(match self.version {
                1 => "memory.usage_in_bytes",
                _ => "memory.current",
            }));
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
            stat.get(format!("total_{name}").as_str()).or_else(|| stat.get(name)).copied()
        };
        let usage = number(&self.folder.join("memory.usage_in_bytes"));
        let with_swap = number(&self.folder.join("memory.memsw.usage_in_bytes"));
        let oom = table(&self.folder.join("memory.oom_control"));
        let cpu = self.cpu.as_ref().map(|cpu| table(&cpu.join("cpu.stat"))).unwrap_or_default();
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

    /// Processes that were killed here for lack of memory, ever.
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

/// Of both versions; "no quota" is -1 and `max`, which are no such numbers.
fn has_cpu_quota(folder: &Path) -> bool {
    let max = fs::read_to_string(folder.join("cpu.max")).unwrap_or_default();
    let quota = max.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
    quota.or_else(|| number(&folder.join("cpu.cfs_quota_us"))).is_some()
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
    let value = line.split(' ').find_map(|word| word.strip_prefix("avg60="))?;
    value.parse().ok()
}

#[cfg(test)]
mod tests;
