//! Creates a cgroup with limits for the service of one run. No other module creates cgroups.
//!
//! Version 1: a folder below that of `ebb` in the hierarchies of the memory and cpu controllers. Version 2: a
//! folder below or next to that of `ebb`, where the controllers are handed down; in a scope that belongs to
//! `ebb` alone it moves itself into a leaf first, since a cgroup with processes cannot hand them down.
//! A cgroup is removed on drop; its last processes may still be ending then.

use super::cgroup::Place;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The length in which a CPU quota is counted: the kernel's own.
const PERIOD_US: u64 = 100_000;
/// Processes that were killed leave their cgroup a moment later.
const LEAVING_LIMIT: Duration = Duration::from_secs(2);

/// The requested limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Memory, swap included.
    pub memory_bytes: Option<u64>,
    /// Processors.
    pub cpus: Option<f64>,
}

/// Where cgroups with these limits can be created.
#[derive(Clone, Debug)]
pub struct CgroupParent {
    version: u8,
    /// Folders that new cgroups are made in: of memory and of the CPU; one folder in version 2.
    memory: PathBuf,
    cpu: Option<PathBuf>,
    limits: Limits,
}

/// A cgroup with limits.
#[derive(Debug)]
pub struct LimitedCgroup {
    folders: Vec<PathBuf>,
}

/// What could not be done, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct CgroupError {
    path: PathBuf,
    source: io::Error,
}

impl CgroupParent {
    /// Finds a parent for cgroups with these limits, and creates one to try it.
    pub fn find(limits: Limits) -> Result<CgroupParent, CgroupError> {
        let own = Place::of(std::process::id() as i32).ok_or_else(|| CgroupError {
            path: "/sys/fs/cgroup".into(),
            source: io::Error::new(io::ErrorKind::NotFound, "no memory cgroup is mounted here"),
        })?;
        let mut problem = None;
        for parent in CgroupParent::candidates(&own, limits) {
            match parent.create("probe") {
                Ok(_) => return Ok(parent),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        if own.version != 1 {
            let parent = CgroupParent { version: 2, memory: own.folder.clone(), cpu: None, limits };
            match hand_down(&own.folder, limits).and_then(|()| parent.create("probe").map(|_| ())) {
                Ok(()) => return Ok(parent),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        Err(problem.unwrap_or_else(|| CgroupError { path: own.folder, source: io::ErrorKind::PermissionDenied.into() }))
    }

    /// Parents that need no change: `ebb`'s own cgroup, else the one above it.
    fn candidates(own: &Place, limits: Limits) -> Vec<CgroupParent> {
        let parent = |memory: &Path, cpu: Option<&Path>| CgroupParent {
            version: own.version,
            memory: memory.to_owned(),
            cpu: cpu.map(Path::to_owned),
            limits,
        };
        if own.version == 1 {
            return vec![parent(&own.folder, own.cpu.as_deref())];
        }
        let beside = own.folder.parent().filter(|parent| parent.starts_with(&own.mount));
        let handed_down = |folder: &&Path| {
            let handed = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
            let handed: Vec<&str> = handed.split_whitespace().collect();
            controllers(limits).iter().all(|name| handed.contains(name))
        };
        [Some(own.folder.as_path()), beside]
            .into_iter()
            .flatten()
            .filter(handed_down)
            .map(|folder| parent(folder, None))
            .collect()
    }

    /// Creates a cgroup with the limits. Characters of `name` that are not safe in a file name are replaced.
    pub fn create(&self, name: &str) -> Result<LimitedCgroup, CgroupError> {
        let safe = |letter: char| {
            if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' }
        };
        let name: String = format!("ebb-{}-{name}", std::process::id()).chars().map(safe).collect();
        let mut made = LimitedCgroup { folders: Vec::new() };
        if self.limits.memory_bytes.is_some() || self.version != 1 {
            made.add(self.memory.join(&name))?;
        }
        if let Some(bytes) = self.limits.memory_bytes {
            let folder = &made.folders[0];
            if self.version == 1 {
                write(&folder.join("memory.limit_in_bytes"), &bytes.to_string())?;
                // Without swap accounting in the kernel there is no such file, and with no swap no need.
                let _ = write(&folder.join("memory.memsw.limit_in_bytes"), &bytes.to_string());
            } else {
                write(&folder.join("memory.max"), &bytes.to_string())?;
                let _ = write(&folder.join("memory.swap.max"), "0");
            }
        }
        if let Some(cpus) = self.limits.cpus {
            let quota = (cpus * PERIOD_US as f64).round() as u64;
            if self.version == 1 {
                let hierarchy = self.cpu.as_ref().ok_or_else(|| CgroupError {
                    path: "/sys/fs/cgroup".into(),
                    source: io::Error::new(io::ErrorKind::NotFound, "no cpu cgroup is mounted here"),
                })?;
                let folder = hierarchy.join(&name);
                made.add(folder.clone())?;
                write(&folder.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                write(&folder.join("cpu.cfs_quota_us"), &quota.to_string())?;
            } else {
                write(&made.folders[0].join("cpu.max"), &format!("{quota} {PERIOD_US}"))?;
            }
        }
        Ok(made)
    }
}

/// The controllers of version 2 that limits need.
fn controllers(limits: Limits) -> Vec<&'static str> {
    let memory = limits.memory_bytes.map(|_| "memory");
    memory.into_iter().chain(limits.cpus.map(|_| "cpu")).collect()
}

/// Makes a leaf for this process below its cgroup and hands the controllers down to the others.
fn hand_down(own: &Path, limits: Limits) -> Result<(), CgroupError> {
    let leaf = own.join("ebb");
    if !leaf.is_dir() {
        fs::create_dir(&leaf).map_err(|source| CgroupError { path: leaf.clone(), source })?;
    }
    write(&leaf.join("cgroup.procs"), "0")?;
    let all: Vec<String> = controllers(limits).iter().map(|name| format!("+{name}")).collect();
    write(&own.join("cgroup.subtree_control"), &all.join(" "))
}

fn write(path: &Path, text: &str) -> Result<(), CgroupError> {
    fs::write(path, text).map_err(|source| CgroupError { path: path.to_owned(), source })
}

impl LimitedCgroup {
    fn add(&mut self, folder: PathBuf) -> Result<(), CgroupError> {
        fs::create_dir(&folder).map_err(|source| CgroupError { path: folder.clone(), source })?;
        self.folders.push(folder);
        Ok(())
    }

    /// Its `cgroup.procs` files: a process enters by writing `0` to each.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        self.folders.iter().map(|folder| folder.join("cgroup.procs")).collect()
    }
}

impl Drop for LimitedCgroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + LEAVING_LIMIT;
        for folder in &self.folders {
            while fs::remove_dir(folder).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
                && Instant::now() < deadline
            {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { memory_bytes: Some(64_000_000), cpus: Some(0.5) };

    fn place(mount: &Path, below: &str) -> Place {
        let folder = mount.join(below);
        fs::create_dir_all(&folder).unwrap();
        Place { version: 2, mount: mount.to_owned(), folder, cpu: None }
    }

    fn read(path: PathBuf) -> String {
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn version_2_goes_where_the_controllers_are_handed_down() {
        let mount = tempfile::tempdir().unwrap();
        let own = place(mount.path(), "user/app");
        assert!(CgroupParent::candidates(&own, LIMITS).is_empty());
        fs::write(mount.path().join("user/cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        let beside = CgroupParent::candidates(&own, LIMITS);
        assert_eq!(beside.len(), 1);
        let made = beside[0].create("a/b").unwrap();
        let folder = made.folders[0].clone();
        assert_eq!(folder.parent(), Some(mount.path().join("user").as_path()));
        assert!(!folder.to_string_lossy().contains("a/b"));
        assert_eq!(read(folder.join("memory.max")), "64000000");
        assert_eq!(read(folder.join("memory.swap.max")), "0");
        assert_eq!(read(folder.join("cpu.max")), "50000 100000");
        assert_eq!(made.procs_files(), [folder.join("cgroup.procs")]);
    }

    #[test]
    fn version_2_hands_down_from_a_scope_of_ones_own() {
        let mount = tempfile::tempdir().unwrap();
        let own = place(mount.path(), "scope");
        hand_down(&own.folder, LIMITS).unwrap();
        assert_eq!(read(own.folder.join("ebb/cgroup.procs")), "0");
        assert_eq!(read(own.folder.join("cgroup.subtree_control")), "+memory +cpu");
    }

    #[test]
    fn what_is_not_allowed_names_the_file() {
        let parent = CgroupParent { version: 1, memory: "/proc/self".into(), cpu: None, limits: LIMITS };
        let message = parent.create("x").unwrap_err().to_string();
        assert!(message.starts_with("/proc/self/ebb-"), "{message}");
    }

    #[test]
    fn a_cgroup_is_gone_when_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let mut made = LimitedCgroup { folders: Vec::new() };
        made.add(dir.path().join("one")).unwrap();
        drop(made);
        assert!(!dir.path().join("one").exists());
    }
}
