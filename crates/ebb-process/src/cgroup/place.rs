//! Where a memory cgroup is: that of a process, or the one that a user named.
//!
//! A hierarchy is found by the mounts of this process.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::Process;

/// A cgroup in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Version of the cgroup hierarchy: 1 or 2.
    pub version: u8,
    /// Where its hierarchy is mounted: the root that we see.
    pub mount: PathBuf,
    /// Its folder.
    pub folder: PathBuf,
    /// Its folder in the hierarchy of the `cpu` controller, where that is another one (version 1).
    pub cpu: Option<PathBuf>,
}

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
            groups.iter().find(|(names, _)| names.iter().any(|name| name == controller)).map(|(_, path)| path.as_str())
        };
        let unified =
            groups.iter().find(|(names, _)| names.iter().all(String::is_empty)).map(|(_, path)| path.as_str());
        let (hierarchy, path) = match (hierarchy("memory"), path_for("memory")) {
            (Some(hierarchy), Some(path)) => (hierarchy, path),
            _ => (unified_hierarchy()?, unified?),
        };
        let cpu = (hierarchy.version == 1).then(|| Some(self::hierarchy("cpu")?.folder(path_for("cpu")?))).flatten();
        Some(Self { version: hierarchy.version, folder: hierarchy.folder(path), mount: hierarchy.mount, cpu })
    }

    /// The memory cgroup that a user named: by its folder, by its path below the mount, or by the name
    /// of a folder anywhere below (a unit, or a container's number, whole or its start).
    pub fn find(asked: &str) -> Vec<Self> {
        let Some(root) = Self::root() else {
            return Vec::new();
        };
        for folder in [PathBuf::from(asked), root.mount.join(asked.trim_start_matches('/'))] {
            // A folder of the memory hierarchy, not just any.
            if asked.contains('/') && folder.join("cgroup.procs").exists() {
                let folder = fs::canonicalize(&folder).unwrap_or(folder);
                if folder.starts_with(&root.mount) {
                    return vec![root.at(folder)];
                }
            }
        }
        if asked.is_empty() || asked.contains('/') {
            return Vec::new();
        }
        let mut found = Vec::new();
        let mut folders = vec![root.mount.clone()];
        while let Some(folder) = folders.pop() {
            for below in folders_in(&folder) {
                let name = below.file_name().map(|name| name.to_string_lossy());
                if name.is_some_and(|name| answers_to(&name, asked)) {
                    found.push(root.at(below));
                } else {
                    folders.push(below);
                }
            }
        }
        found.sort_by(|left: &Self, right| left.folder.cmp(&right.folder));
        found
    }

    /// The root of the memory hierarchy that we see.
    pub fn root() -> Option<Self> {
        let Hierarchy { version, mount, .. } = hierarchy("memory").or_else(unified_hierarchy)?;
        Some(Self { version, folder: mount.clone(), mount, cpu: None })
    }

    /// The root of the hierarchy that is mounted at `mount`; nothing where none is.
    pub fn root_at(mount: &Path) -> Option<Self> {
        let version = if mount.join("cgroup.controllers").exists() { 2 } else { 1 };
        let (mount, folder) = (mount.to_owned(), mount.to_owned());
        folder.join("cgroup.procs").exists().then_some(Self { version, mount, folder, cpu: None })
    }

    /// The cgroup of another folder of the same hierarchy.
    fn at(&self, folder: PathBuf) -> Self {
        let cpu = || {
            let below = folder.strip_prefix(&self.mount).ok()?;
            let cpu = hierarchy("cpu")?.mount.join(below);
            cpu.is_dir().then_some(cpu)
        };
        let cpu = if self.version == 1 { cpu() } else { None };
        Self { version: self.version, mount: self.mount.clone(), cpu, folder }
    }

    /// The cgroups directly below, without their folders in other hierarchies.
    pub fn below(&self) -> Vec<Self> {
        let below = folders_in(&self.folder).into_iter();
        below.map(|folder| Self { folder, cpu: None, ..self.clone() }).collect()
    }

    /// Its own processes, without those of the cgroups below.
    pub fn own_pids(&self) -> Vec<i32> {
        pids_in(&self.folder)
    }

    /// Its processes and those of the cgroups below.
    pub fn pids(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            pids.extend(pids_in(&folder));
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
        let below = self.folder.strip_prefix(&self.mount).unwrap_or(&self.folder);
        format!("/{}", below.display())
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
        if below.contains("..") || !folder.is_dir() { self.mount.clone() } else { folder }
    }
}

fn hierarchy(controller: &str) -> Option<Hierarchy> {
    mounted(|kind, options| kind == "cgroup" && options.contains_key(controller), 1)
}

/// The mounted hierarchy of version 2, if it has the memory controller.
fn unified_hierarchy() -> Option<Hierarchy> {
    let found = mounted(|kind, _| kind == "cgroup2", 2)?;
    let controllers = fs::read_to_string(found.mount.join("cgroup.controllers")).ok()?;
    controllers.split_whitespace().any(|name| name == "memory").then_some(found)
}

fn mounted(is_it: impl Fn(&str, &HashMap<String, Option<String>>) -> bool, version: u8) -> Option<Hierarchy> {
    let mounts = Process::myself().ok()?.mountinfo().ok()?;
    mounts.into_iter().find(|mount| is_it(&mount.fs_type, &mount.super_options)).map(|mount| Hierarchy {
        version,
        root: mount.root,
        mount: mount.mount_point,
    })
}

/// Whether a folder's name is that of the requested unit or container: `nginx` and
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

fn pids_in(folder: &Path) -> Vec<i32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    // 0 is a process outside our namespace of pids.
    text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid != 0).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_containers_are_known_by_their_folders_names() {
        let id = "0123456789abcdef0123";
        assert!(answers_to("nginx.service", "nginx"));
        assert!(answers_to("nginx.service", "nginx.service"));
        assert!(answers_to(&format!("docker-{id}.scope"), &id[..12]));
        assert!(answers_to(&format!("cri-containerd-{id}.scope"), id));
        assert!(answers_to(id, &id[..12]));
        assert!(!answers_to(id, "0123"), "too short to be a container's number");
        assert!(!answers_to("nginx-old.service", "nginx"));
    }

    #[test]
    fn a_path_outside_of_what_is_mounted_is_the_root_that_we_see() {
        let mount = tempfile::tempdir().unwrap();
        fs::create_dir(mount.path().join("x")).unwrap();
        let hierarchy = Hierarchy { version: 2, root: "/docker/7".into(), mount: mount.path().to_owned() };
        assert_eq!(hierarchy.folder("/docker/7/x"), mount.path().join("x"));
        assert_eq!(hierarchy.folder("/docker/7"), mount.path());
        assert_eq!(hierarchy.folder("/../.."), mount.path());
        assert_eq!(hierarchy.folder("/elsewhere"), mount.path());
    }
}
