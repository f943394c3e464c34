//! Who is there: every cgroup with processes, and what it is called by those who started it.
//!
//! The names come from the paths alone: no daemon is asked. Used by `node` at each tick.

use std::collections::BTreeMap;
use std::path::Path;

use ebb_process::cgroup::Place;

/// Deeper than any hierarchy; also bounds what a link in circles costs.
const MOST_LEVELS: usize = 32;
/// More cgroups than a node has: 500 pods with ten containers each.
const MOST_GROUPS: usize = 5000;

/// What a cgroup is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its path below the mount; `/` holds the processes that are in no cgroup of their own.
    pub cgroup: String,
    /// The container's id, 64 hexadecimal digits.
    pub container_id: Option<String>,
    /// The pod's uid; of a static pod the hash of its file.
    pub pod_uid: Option<String>,
    /// The unit of systemd.
    pub unit: Option<String>,
}

impl Identity {
    /// What the path of a cgroup says, in both forms that container runtimes use.
    pub fn of_path(path: &str) -> Self {
        let innermost_first = || path.rsplit('/').filter(|name| !name.is_empty());
        let container_id = innermost_first().find_map(container_id);
        let pod_uid = container_id.as_ref().and(innermost_first().find_map(pod_uid));
        let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".scope");
        let unit = innermost_first().find(is_unit).filter(|_| container_id.is_none());
        let unit = unit.map(str::to_owned);
        Self { cgroup: path.to_owned(), container_id, pod_uid, unit }
    }
}

/// The id in a folder's name: `<id>`, `docker-<id>.scope`, `kubepods-pod7.slice:cri-containerd:<id>`.
fn container_id(folder: &str) -> Option<String> {
    let name = folder.strip_suffix(".scope").unwrap_or(folder);
    let (runtime, id) = name.rsplit_once(['-', ':']).unwrap_or(("", name));
    let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    // The scope of a monitor has its container's id, too.
    (is_id && !runtime.ends_with("conmon")).then(|| id.to_ascii_lowercase())
}

/// The uid in a folder's name: `pod<uid>`, or with `_` for `-` in `kubepods-burstable-pod<uid>.slice`.
fn pod_uid(folder: &str) -> Option<String> {
    let name = folder.split(':').next().unwrap_or(folder);
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let uid = name.strip_prefix("pod").or_else(|| Some(name.rsplit_once("-pod")?.1))?;
    let is_uid = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_');
    let fits = matches!(uid.len(), 32 | 36) && uid.bytes().all(is_uid);
    fits.then(|| uid.replace('_', "-"))
}

/// A cgroup with the processes that are in it.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its names.
    pub identity: Identity,
    /// Its folder.
    pub place: Place,
    /// Its processes. Cgroups inside a container count as the container.
    pub pids: Vec<i32>,
}

/// All cgroups with processes, by path; without a mounted memory hierarchy, none.
pub fn groups(mount: Option<&Path>) -> BTreeMap<String, Found> {
    let root = mount.map_or_else(Place::root, Place::root_at);
    let mut found = BTreeMap::new();
    let mut left: Vec<(Place, Option<String>, usize)> = root.into_iter().map(|root| (root, None, 0)).collect();
    while let Some((place, container, depth)) = left.pop() {
        let path = place.path();
        let name = path.rsplit('/').next().unwrap_or_default();
        let container = if container_id(name).is_some() { Some(path.clone()) } else { container };
        let of = container.clone().unwrap_or(path);
        let pids = place.own_pids();
        if depth < MOST_LEVELS {
            left.extend(place.below().into_iter().map(|it| (it, container.clone(), depth + 1)));
        }
        if container.as_deref() == Some(&place.path()) || !pids.is_empty() {
            if found.len() >= MOST_GROUPS && !found.contains_key(&of) {
                continue;
            }
            let new = || Found { identity: Identity::of_path(&of), place, pids: Vec::new() };
            found.entry(of.clone()).or_insert_with(new).pids.extend(pids);
        }
    }
    found.retain(|_, group| !group.pids.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const UID: &str = "12345678-1234-1234-1234-123456789abc";

    #[test]
    fn containers_pods_and_units_are_known_by_their_paths() {
        let of = |path: &str| {
            let Identity { container_id, pod_uid, unit, .. } = Identity::of_path(path);
            let known = container_id.is_some_and(|id| id == ID);
            (known, pod_uid.unwrap_or_default(), unit.unwrap_or_default())
        };
        let flat = UID.replace('-', "_");
        let pod = (true, UID.to_owned(), String::new());
        let slice = format!("kubepods-burstable-pod{flat}.slice");
        for runtime in ["cri-containerd-", "crio-", "docker-"] {
            let path = format!("/kubepods.slice/kubepods-burstable.slice/{slice}/{runtime}{ID}.scope");
            assert_eq!(of(&path), pod, "{path}");
        }
        assert_eq!(of(&format!("/kubepods.slice/kubepods-pod{flat}.slice/docker-{ID}.scope")), pod);
        assert_eq!(of(&format!("/kubepods/besteffort/pod{UID}/{ID}")), pod);
        assert_eq!(of(&format!("/kubepods/pod{UID}/{ID}/init.scope")), pod, "systemd inside");
        assert_eq!(of(&format!("/system.slice/{slice}:cri-containerd:{ID}")), pod);
        let hash = "0123456789abcdef0123456789abcdef";
        assert_eq!(of(&format!("/kubepods/pod{hash}/{ID}")).1, hash, "a static pod");
        assert_eq!(of(&format!("/system.slice/docker-{ID}.scope")), (true, String::new(), String::new()));
        let unit = |name: &str| (false, String::new(), name.to_owned());
        assert_eq!(of("/system.slice/nginx.service"), unit("nginx.service"));
        assert_eq!(of("/system.slice/nginx.service/worker"), unit("nginx.service"));
        assert!(!of(&format!("/machine.slice/libpod-conmon-{ID}.scope")).0);
        assert_eq!(of("/"), unit(""));
        assert_eq!(of("/podcast/web"), unit(""), "no container, no pod");
    }

    #[test]
    fn every_cgroup_with_processes_is_found_and_a_container_is_one() {
        let mount = tempfile::tempdir().unwrap();
        let pod = format!("kubepods/pod{UID}");
        let files = [
            (String::new(), "1\n0\n"),
            ("system.slice".into(), ""),
            ("system.slice/a.service".into(), "2\n3\n"),
            (format!("{pod}/{ID}"), ""),
            (format!("{pod}/{ID}/init.scope"), "4\n"),
            (format!("{pod}/{ID}/system.slice/b.service"), "5\n"),
        ];
        for (below, pids) in &files {
            let folder = mount.path().join(below);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("cgroup.procs"), pids).unwrap();
        }
        let found = groups(Some(mount.path()));
        let seen: Vec<(&str, Vec<i32>)> = found
            .iter()
            .map(|(path, group)| {
                let mut pids = group.pids.clone();
                pids.sort_unstable();
                (path.as_str(), pids)
            })
            .collect();
        let container = format!("/{pod}/{ID}");
        assert_eq!(seen, [("/", vec![1]), (&container, vec![4, 5]), ("/system.slice/a.service", vec![2, 3])]);
        assert_eq!(found[&container].place.path(), container);
        assert!(groups(Some(Path::new("/nowhere"))).is_empty());
    }
}
