//! Trees of files in place of the kernel's: recorded ones of version 2 (`ci/vm/record.sh`; kernel and day in
//! `ci/vm/recorded/machine`), and written ones for cases that no machine shows at will. The version that a
//! machine has is read for real in the preload suite as well; `ci/vm.sh` has one with version 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const MIB: usize = 1 << 20;

struct Tree(PathBuf);

impl Tree {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ebb-cgroup-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, path: &str, text: impl AsRef<str>) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.as_ref()).unwrap();
    }

    /// A cgroup of version 2: its memory.max and memory.high, each a number of MiB or none, and what it uses.
    fn cgroup(&self, folder: &str, max: Option<usize>, high: Option<usize>, current: usize) {
        let limit = |limit: Option<usize>| limit.map_or("max\n".to_owned(), mib);
        self.file(&format!("{folder}/memory.max"), limit(max));
        self.file(&format!("{folder}/memory.high"), limit(high));
        self.file(&format!("{folder}/memory.current"), mib(current));
    }

    fn mount(&self, kind: &str, options: &str) -> String {
        mount_line(&self.0, kind, options)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mount_line(point: &Path, kind: &str, options: &str) -> String {
    format!("30 23 0:26 / {} rw shared:4 - {kind} cgroup {options}\n", point.display())
}

/// What the kernel says of mounts and of the cgroups of the process, and room to read.
fn texts<'a>(mounts: &'a str, cgroups: &'a str, stat: &'a mut [u8; 4096]) -> Texts<'a> {
    Texts { mounts: mounts.as_bytes(), cgroups: cgroups.as_bytes(), stat }
}

fn headroom(mounts: &str, cgroups: &str) -> Option<(usize, usize)> {
    let headroom = Linux::new().least_headroom(&mut texts(mounts, cgroups, &mut [0; 4096]));
    headroom.map(|headroom| (headroom.limit_bytes / MIB, headroom.left_bytes / MIB))
}

fn processors(mounts: &str, cgroups: &str) -> Option<usize> {
    Linux::new().least_processors(&mut texts(mounts, cgroups, &mut [0; 4096]))
}

fn mib(count: usize) -> String {
    format!("{}\n", count * MIB)
}

/// A pod's cgroup inside of others, of which each may have limits: a fixture.
fn pod(tree: &Tree) {
    tree.cgroup("kube", None, None, 9000);
    tree.cgroup("kube/pod", Some(1024), None, 300);
    tree.cgroup("kube/pod/app", Some(512), None, 200);
}

/// The recorded cgroups: the sections of one file.
fn recorded() -> Tree {
    let tree = Tree::new();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/vm/recorded/cgroups.txt");
    for section in fs::read_to_string(path).unwrap().split("-- ").skip(1) {
        let (name, text) = section.split_once(" --\n").unwrap();
        tree.file(name, text);
    }
    tree
}

#[test]
fn recorded_version_2_has_limits_and_quotas() {
    let tree = recorded();
    let mount = tree.mount("cgroup2", "rw,nsdelegate");
    let left = |cgroup: &str| headroom(&mount, &format!("0::/{cgroup}\n"));
    // The app has none of its own: 75.3 of the pod's 256 MiB are used.
    assert_eq!(left("pod/app"), Some((256, 180)));
    // Beyond memory.high: but for the page cache nothing is left.
    assert_eq!(left("high"), Some((32, 0)));
    assert_eq!(left("killed"), Some((32, 31)));
    assert_eq!(processors(&mount, "0::/pod/app\n"), Some(1));
    assert_eq!(processors(&mount, "0::/pod\n"), None);
}

#[test]
fn version_2_the_tightest_cgroup_counts() {
    let tree = Tree::new();
    pod(&tree);
    let look = || headroom(&tree.mount("cgroup2", "rw"), "0::/kube/pod/app\n");
    assert_eq!(look(), Some((512, 312)));
    // A neighbour in the pod uses what the pod may have.
    tree.file("kube/pod/memory.current", mib(900));
    tree.file("kube/pod/memory.stat", "anon 1\ninactive_file 0\n");
    assert_eq!(look(), Some((1024, 124)));
    tree.file("kube/memory.max", mib(9001));
    tree.file("kube/memory.stat", "anon 1\ninactive_file 0\n");
    assert_eq!(look(), Some((9001, 1)));
}

#[test]
fn version_2_high_is_a_limit() {
    let tree = Tree::new();
    pod(&tree);
    tree.file("kube/pod/app/memory.high", mib(400));
    let look = || headroom(&tree.mount("cgroup2", "rw"), "0::/kube/pod/app\n");
    assert_eq!(look(), Some((400, 200)));
    tree.file("kube/pod/app/memory.max", "max\n");
    assert_eq!(look(), Some((400, 200)));
    // Beyond it already: nothing is left, whatever there is.
    tree.file("kube/pod/app/memory.current", mib(450));
    tree.file("kube/pod/app/memory.stat", "inactive_file 0\n");
    assert_eq!(look(), Some((400, 0)));
}

#[test]
fn version_2_inactive_page_cache_is_left_over() {
    let tree = Tree::new();
    pod(&tree);
    tree.file("kube/pod/app/memory.current", mib(500));
    let stat = format!(
        "anon {}\nfile {}\ninactive_anon 0\ninactive_file {}\nactive_file 0\n",
        300 * MIB,
        200 * MIB,
        150 * MIB
    );
    tree.file("kube/pod/app/memory.stat", stat);
    let look = || headroom(&tree.mount("cgroup2", "rw"), "0::/kube/pod/app\n");
    assert_eq!(look(), Some((512, 162)));
    // Without the file nothing is known of this cgroup.
    fs::remove_file(tree.0.join("kube/pod/app/memory.stat")).unwrap();
    assert_eq!(look(), Some((1024, 724)));
}

#[test]
fn without_limits_there_is_no_headroom_to_watch() {
    let tree = Tree::new();
    tree.cgroup("app", None, None, 5);
    let mount = tree.mount("cgroup2", "rw");
    assert_eq!(headroom(&mount, "0::/app\n"), None);
    assert_eq!(headroom(&mount, "0::/gone\n"), None);
    assert_eq!(headroom("", "0::/app\n"), None);
    assert_eq!(headroom(&mount, ""), None);
}

#[test]
fn version_1_ancestors_and_inactive_page_cache() {
    let tree = Tree::new();
    let none = "9223372036854771712\n";
    tree.file("memory.limit_in_bytes", none);
    tree.file("memory.usage_in_bytes", mib(5000));
    tree.file("a/memory.limit_in_bytes", mib(300));
    tree.file("a/memory.usage_in_bytes", mib(280));
    tree.file("a/memory.stat", format!("inactive_file 0\ntotal_inactive_file {}\n", 4 * MIB));
    tree.file("a/b/memory.limit_in_bytes", none);
    tree.file("a/b/memory.usage_in_bytes", mib(100));
    let mount = tree.mount("cgroup", "rw,memory");
    assert_eq!(headroom(&mount, "5:memory:/a/b\n"), Some((300, 24)));
    assert_eq!(headroom(&mount, "5:cpu:/a/b\n"), None);
}

#[test]
fn quotas_of_both_versions() {
    let tree = Tree::new();
    tree.file("two/cpu.max", "max 100000\n");
    tree.file("two/in/cpu.max", "250000 100000\n");
    let mount = tree.mount("cgroup2", "rw");
    assert_eq!(processors(&mount, "0::/two/in\n"), Some(3));
    assert_eq!(processors(&mount, "0::/two\n"), None);
    tree.file("one/cpu.cfs_quota_us", "-1\n");
    tree.file("one/cpu.cfs_period_us", "100000\n");
    let mount = tree.mount("cgroup", "rw,cpu,cpuacct");
    assert_eq!(processors(&mount, "3:cpu,cpuacct:/one\n"), None);
    tree.file("one/cpu.cfs_quota_us", "50000\n");
    assert_eq!(processors(&mount, "3:cpu,cpuacct:/one\n"), Some(1));
}

#[test]
fn this_machine_has_an_answer() {
    let os = Linux::new();
    // Whatever limits there are, each is at least as large as its remainder.
    if let Some(headroom) = os.cgroup_headroom() {
        assert!(headroom.left_bytes <= headroom.limit_bytes);
    }
    assert!(os.cgroup_processors().is_none_or(|processors| processors > 0));
    assert!(os.with_texts(|texts| Some(text::mounts(texts.mounts).count())).is_some());
}

#[test]
fn paths_that_are_too_long_are_left_out() {
    let long = vec![b'a'; PATH_BYTES];
    assert!(Folder::new(b"/m", &long).is_none());
    let mut folder = Folder::new(b"/m", &long[..PATH_BYTES - 10]).unwrap();
    assert!(folder.file(c"/memory.max").is_none());
    let mut folder = Folder::new(b"/m", b"/a/b").unwrap();
    assert_eq!(folder.file(c"/x").unwrap(), c"/m/a/b/x");
    assert!(folder.leave());
    assert_eq!(folder.file(c"/x").unwrap(), c"/m/a/x");
    assert!(folder.leave());
    assert_eq!(folder.file(c"/x").unwrap(), c"/m/x");
    assert!(!folder.leave());
}
