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
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::snapshot::{Cgroup, CgroupParts, Stress};

/// Version 1 says "no limit" with the largest multiple of a page, which depends on the page's size.
const NO_LIMIT: u64 = 1 << 62;
/// More levels than any hierarchy has; a link that leads in circles ends there.
const MOST_LEVELS: usize = 64;
/// The longest of its files, `memory.stat`, is shorter.
const TEXT_BYTES: usize = 4096;

impl Place {
    /// Its figures and its processes. `others_anon` is left to the caller, who knows which processes are whose.
    pub fn read(&self) -> Cgroup {
        Cgroup { pids: self.pids(), ..self.figures() }
    }

    /// Its figures, without its processes.
    pub fn figures(&self) -> Cgroup {
        let mut cgroup = match self.version {
            1 => self.read_v1(),
            _ => self.read_v2(),
        };
        cgroup.path = self.path();
        cgroup.version = self.version;
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
        let pressure = text(&self.folder.join("memory.pressure")).unwrap_or_default();
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
        let part = |name: &str| stat.get(format!("total_{name}").as_str()).or_else(|| stat.get(name)).copied();
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
    let max = text(&folder.join("cpu.max")).unwrap_or_default();
    let quota = max.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
    quota.or_else(|| number(&folder.join("cpu.cfs_quota_us"))).is_some()
}

/// What is in a file. Its length is not asked for, as `fs::read_to_string` does: the kernel knows none, and many are read often.
fn text(path: &Path) -> Option<String> {
    let mut text = String::with_capacity(TEXT_BYTES);
    File::open(path).ok()?.take(u64::MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// A file with one number; `max` is no number.
fn number(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// A file of names and numbers, one a line.
fn table(path: &Path) -> BTreeMap<String, u64> {
    let text = text(path).unwrap_or_default();
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
mod tests {
    //! Folders of both versions and this process's own cgroup. Those of version 2 are of a real kernel, recorded by
    //! `ci/vm/record.sh` (kernel and day: `ci/vm/recorded/machine`); what it cannot be brought to show is written by hand.

    use std::fs;

    use super::*;

    /// The recorded cgroups, below one mount: the sections of one file.
    fn mount() -> tempfile::TempDir {
        let text = include_str!("recorded/cgroups.txt");
        let sections = text.split("-- ").skip(1);
        let files = sections.map(|it| it.split_once(" --\n").unwrap());
        folder(&files.collect::<Vec<_>>())
    }

    fn recorded(below: &str) -> Cgroup {
        place(mount().path(), below, 2).read()
    }

    /// A folder with the files given, written by hand.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn place(mount: &Path, below: &str, version: u8) -> Place {
        Place { version, mount: mount.to_owned(), folder: mount.join(below), cpu: None }
    }

    #[test]
    fn recorded_version_2_an_app_below_the_limit_of_its_pod_and_short_of_processor_time() {
        let app = recorded("pod/app");
        assert_eq!(app.usage, Some(78_995_456));
        assert_eq!(app.peak, Some(104_169_472));
        assert_eq!((app.high, app.swap), (None, Some(0)));
        assert_eq!(app.limit, Some(256 << 20));
        assert_eq!(app.limit_of.as_deref(), Some("/pod"));
        let parts = &app.parts;
        assert!(parts.anon > Some(64 << 20), "{parts:?}");
        // What is charged is the sum of these three; the kernel brings them up to date one after the other.
        let sum = parts.anon.unwrap() + parts.file.unwrap() + parts.kernel.unwrap();
        assert!(sum.abs_diff(app.usage.unwrap()) < 1 << 20, "{parts:?}");
        assert_eq!(app.stress.throttled_periods, Some(892));
        assert_eq!(app.stress.throttled_s, Some(39.726674));
        assert_eq!(place(mount().path(), "pod/app", 2).throttled_s(), Some(39.726674));
        assert_eq!(place(mount().path(), "pod", 2).throttled_s(), None, "no quota");
    }

    #[test]
    fn recorded_version_2_more_than_memory_high() {
        let high = recorded("high");
        assert_eq!(high.high, Some(32 << 20));
        assert!(high.usage > high.high, "{:?}", high.usage);
        assert_eq!(high.stress.limit_hits, Some(0), "of memory.max");
        assert_eq!(high.stress.memory_some_60, Some(41.82));
        assert_eq!(high.stress.memory_full_60, Some(41.82));
    }

    #[test]
    fn recorded_version_2_somebody_was_killed() {
        let killed = recorded("killed");
        assert_eq!(killed.stress.oom_kills, Some(1));
        assert_eq!(killed.stress.limit_hits, Some(35));
        assert_eq!(killed.peak, killed.limit);
        assert_eq!(place(mount().path(), "killed", 2).oom_kills(), Some(1));
    }

    #[test]
    fn recorded_version_2_partly_in_swap() {
        let swapped = recorded("swapped");
        assert_eq!(swapped.swap, Some(79_106_048));
        assert_eq!(swapped.parts.anon, Some(60_239_872));
        assert_eq!(swapped.stress.limit_hits, Some(278));
        assert_eq!(swapped.stress.memory_some_60, Some(2.51));
    }

    #[test]
    fn version_2_is_read_with_the_lowest_limit_of_its_ancestors() {
        let mount = folder(&[
            ("a/memory.max", "1000000\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.current", "900000\n"),
            ("a/b/memory.high", "max\n"),
            (
                "a/b/memory.stat",
                "anon 500000\nfile 300000\nkernel 100000\nshmem 20000\nfile_mapped 30000\ninactive_file 200000\nsock 4096\npagetables 8192\n",
            ),
            ("a/b/memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n"),
            (
                "a/b/memory.pressure",
                "some avg10=0.00 avg60=1.50 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.25 avg300=0.00 total=9\n",
            ),
            ("a/b/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000\n"),
            ("a/b/cgroup.procs", "0\n12\n"),
            ("a/b/c/cgroup.procs", "7\n12\n"),
        ]);
        let cgroup = place(mount.path(), "a/b", 2).read();
        assert_eq!((cgroup.usage, cgroup.high), (Some(900_000), None));
        assert_eq!(cgroup.limit, Some(1_000_000));
        assert_eq!(cgroup.limit_of.as_deref(), Some("/a"));
        assert_eq!(cgroup.parts.anon, Some(500_000));
        assert_eq!(cgroup.parts.inactive_file, Some(200_000));
        assert_eq!(cgroup.parts.sockets, Some(4096));
        assert_eq!(cgroup.parts.slab, None, "absent is not 0");
        assert_eq!(cgroup.stress.limit_hits, Some(7));
        assert_eq!(cgroup.stress.oom_kills, Some(1));
        assert_eq!(cgroup.stress.throttled_s, Some(2.5));
        assert_eq!(cgroup.stress.memory_full_60, Some(0.25));
        assert_eq!(cgroup.pids, [7, 12]);
    }

    #[test]
    fn version_1_is_read_with_its_descendants() {
        let mount = folder(&[
            ("a/memory.usage_in_bytes", "900\n"),
            ("a/memory.limit_in_bytes", "9223372036854771712\n"),
            ("a/memory.stat", "rss 1\ntotal_rss 500\ncache 2\ntotal_cache 300\ntotal_shmem 5\n"),
            ("a/memory.failcnt", "4\n"),
            ("a/cgroup.procs", "1\n"),
        ]);
        let cgroup = place(mount.path(), "a", 1).read();
        assert_eq!(cgroup.limit, None);
        assert_eq!((cgroup.parts.anon, cgroup.parts.file), (Some(500), Some(300)));
        assert_eq!(cgroup.stress.limit_hits, Some(4));
        assert_eq!(cgroup.parts.page_tables, None);
    }

    #[test]
    fn this_process_is_in_its_own_cgroup() {
        let own = std::process::id() as i32;
        let Some(place) = Place::of(own) else {
            // No memory controller is mounted: then there is none of any process.
            assert_eq!(Place::of(1), None);
            return;
        };
        let cgroup = place.read();
        assert!(cgroup.pids.contains(&own), "{}", cgroup.path);
        assert!(cgroup.usage > Some(0) || place.is_root());
    }
}
