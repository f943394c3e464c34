//! What a look must not change, as the kernel tells it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;

use ebb_process::Tree;
use procfs::process::Process;

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

/// `root` and its descendants, by number.
pub fn tree(root: i32) -> Vec<i32> {
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
        tree(root).into_iter().map(Self::of).collect()
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
        changed
            .map(|(name, before, after)| format!("{}: {name} {before} -> {after}", self.pid))
            .collect()
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

/// Forgets what the processes of `root` have written to.
pub fn clear_soft_dirty(root: i32) {
    for pid in tree(root) {
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
        pages += entries
            .filter(|entry| u64::from_ne_bytes((*entry).try_into().unwrap()) & SOFT_DIRTY != 0)
            .count() as u64;
    }
    pages
}
