//! Programs to look at, the verbs that look, and what a look must not change, as the kernel tells it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use ebb_process::Tree;
use procfs::process::Process;
use tempfile::TempDir;

use crate::harness;

/// A process with all its descendants, in a process group of its own that ends with this value.
pub struct Group(pub Child);

impl Group {
    pub fn start(command: &mut Command) -> Self {
        let child = command.process_group(0).spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}: ci/install.sh")))
    }

    /// Starts it and waits for its word.
    pub fn ready(command: &mut Command) -> Self {
        let mut group = Self::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(group.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "ready", "{command:?}");
        group
    }

    pub fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let all = pids_of(self.pid());
        // Children that made groups of their own are in the list.
        for pid in all.into_iter().chain([-self.pid()]) {
            let pid = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

pub fn tree() -> PathBuf {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = BUILT.get_or_init(|| {
        let folder = harness::folder();
        let program = harness::compile(&folder, "cc", "tree", include_str!("tree.c"), &["-O1"]);
        (folder, program)
    });
    program.clone()
}

/// Debian's gunicorn on Debian's Python, with eight workers that share 40 MB of objects of the master.
pub fn gunicorn(folder: &TempDir) -> Command {
    let text = "import gc\n\
                rows = [{'id': i, 'name': str(i) * 8} for i in range(100_000)]\n\
                gc.freeze()\n\
                def app(environ, start):\n    start('200 OK', [])\n    return [b'']\n";
    std::fs::write(folder.path().join("held.py"), text).expect("a file");
    let mut command = Command::new("gunicorn");
    command
        .args(["--preload", "--workers", "8", "--log-level", "error", "--timeout", "300"])
        // Workers write into a file of their own each second; not into anonymous memory.
        .args(["--worker-tmp-dir", "/dev/shm"])
        .arg(format!("--bind=unix:{}", folder.path().join("socket").display()))
        .arg("held:app")
        .current_dir(folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    pub pid: i32,
    /// Anonymous memory, a page that n processes share counted as 1/n.
    pub anonymous_pss: u64,
    /// Pages of files. Without their share of others, since other programs come and go.
    pub file_rss: u64,
    pub huge: u64,
    pub swap: u64,
    /// Pages written to since [`clear_soft_dirty`].
    pub soft_dirty: u64,
}

pub fn pids_of(root: i32) -> Vec<i32> {
    let mut all = Tree::of(root).expect("it lives").pids().to_vec();
    all.sort_unstable();
    all
}

impl Figures {
    pub fn of(pid: i32) -> Self {
        let process = Process::new(pid).expect("it lives");
        let rollup = process.smaps_rollup().expect("its figures").memory_map_rollup.0;
        let bytes = |name: &str| rollup[0].extension.map[name];
        let status = process.status().expect("its status");
        Self {
            pid,
            anonymous_pss: bytes("Pss_Anon"),
            file_rss: status.rssfile.expect("its pages of files") << 10,
            huge: bytes("AnonHugePages"),
            swap: bytes("Swap"),
            soft_dirty: soft_dirty(pid),
        }
    }

    pub fn of_tree(root: i32) -> Vec<Self> {
        pids_of(root).into_iter().map(Self::of).collect()
    }

    /// What differs from `before` by more than 1 %, and by more than the 16 pages that the kernel maps around one of a file.
    pub fn changes_since(&self, before: &Self) -> Vec<String> {
        let figures = [
            ("anonymous PSS", before.anonymous_pss, self.anonymous_pss),
            ("pages of files", before.file_rss, self.file_rss),
            ("huge pages", before.huge, self.huge),
            ("swap", before.swap, self.swap),
            ("soft-dirty pages", before.soft_dirty, self.soft_dirty),
        ];
        let changed = figures.into_iter().filter(|(name, before, after)| {
            let slack = match *name {
                "anonymous PSS" => before / 100 + (16 << 10),
                "pages of files" => before / 100 + (64 << 10),
                _ => 0,
            };
            before.abs_diff(*after) > slack
        });
        changed.map(|(name, before, after)| format!("{}: {name} {before} -> {after}", self.pid)).collect()
    }
}

/// Asserts that the processes of `root` are those of `before`, with the same figures.
pub fn assert_unchanged(before: &[Figures], root: i32, after_what: &str) {
    let after = Figures::of_tree(root);
    let pids = |figures: &[Figures]| figures.iter().map(|it| it.pid).collect::<Vec<_>>();
    assert_eq!(pids(before), pids(&after), "after {after_what}");
    let changes: Vec<String> =
        before.iter().zip(&after).flat_map(|(before, after)| after.changes_since(before)).collect();
    assert!(changes.is_empty(), "after {after_what}: {changes:#?}");
}

pub fn clear_soft_dirty(root: i32) {
    for pid in pids_of(root) {
        let file = fs::File::options().write(true).open(format!("/proc/{pid}/clear_refs"));
        file.and_then(|mut file| file.write_all(b"4")).expect("its clear_refs");
    }
}

/// Pages of private anonymous memory with the bit; 0 where the kernel has none (CONFIG_MEM_SOFT_DIRTY).
fn soft_dirty(pid: i32) -> u64 {
    const SOFT_DIRTY: u64 = 1 << 55;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let pagemap = fs::File::open(format!("/proc/{pid}/pagemap")).expect("it lives");
    let mut pages = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
        let (start, end) = range.expect("a range");
        let number = |hex| u64::from_str_radix(hex, 16).unwrap() / 4096;
        let mut entries = vec![0; (number(end) - number(start)) as usize * 8];
        let read = pagemap.read_at(&mut entries, number(start) * 8).unwrap_or(0);
        let entries = entries[..read].chunks_exact(8);
        pages +=
            entries.filter(|entry| u64::from_ne_bytes((*entry).try_into().unwrap()) & SOFT_DIRTY != 0).count() as u64;
    }
    pages
}

/// Calls each verb on process `pid`; `after` gets the name of each when it is done.
pub fn each(pid: i32, mut after: impl FnMut(&str)) {
    let folder = harness::folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let pid = pid.to_string();
    let sides = [format!("one={pid}"), format!("other={pid}")];
    let before = file("before");
    let verbs: [&[&str]; 7] = [
        &["why", &pid],
        &["why", &pid, "--watch", "2s", "--every", "1s"],
        &["snap", &pid, "-o", &before],
        &["diff", &before, &before],
        &["trim", &pid, "--dry-run"],
        &["check", &pid],
        &["compare", "--live", &sides[0], &sides[1], "--for", "3s", "--every", "500ms"],
    ];
    for arguments in verbs {
        let output = ebb().args(arguments).output().expect("ebb");
        let said = String::from_utf8_lossy(&output.stderr);
        // A finding of `check` is 1, `trim` that leaves it alone 10 and more: but it looked.
        assert!(output.status.code().is_some_and(|code| code < 64), "{arguments:?}: {said}");
        after(&arguments.join(" "));
    }
    scrape(&pid, &folder.path().join("figures.prom"));
    after("watch");
}

/// `ebb watch` until it has written once.
fn scrape(pid: &str, file: &Path) {
    let mut watch = ebb();
    watch.args(["watch", pid, "--every", "60s", "--prometheus"]).arg(file);
    let mut watch = watch.spawn().expect("ebb");
    harness::wait_until("figures are written", || file.exists());
    let _ = watch.kill();
    let _ = watch.wait();
}

fn ebb() -> Command {
    let mut command = match std::env::var_os("EBB_TEST_EBB") {
        // An earlier one, to see the tests fail.
        Some(path) => Command::new(path),
        None => harness::ebb(),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
