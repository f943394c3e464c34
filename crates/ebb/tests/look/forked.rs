//! Processes that share memory since a fork, also in a memory cgroup with 5 % of headroom; the time of a look is bounded.

use std::process::{Command, Stdio};
use std::time::Instant;

use ebb_inspect::{LOOK_WITHIN, Target, Unreadable, glibc};
use test_needs::skip;

use crate::harness::subjects::Cgroup;
use crate::harness::{self, wait_until};
use crate::programs::{self, Figures, Group};

/// Calls each verb on `root` and holds what the kernel says of all its processes against what it said before. They are stopped, so
/// that nothing that they do themselves changes it.
pub fn assert_untouched(root: i32) {
    for pid in programs::pids_of(root) {
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("it lives");
    }
    programs::clear_soft_dirty(root);
    let before = Figures::of_tree(root);
    programs::each(root, |verb| programs::assert_unchanged(&before, root, verb));
}

#[test]
fn blocks_that_a_fork_shares_stay_shared() {
    let tree = Group::ready(Command::new(programs::tree()).args(["small", "40"]));
    assert_untouched(tree.pid());
}

/// On the kernel of `ci/vm.sh`, which has swap and soft-dirty bits, and on any other that has swap.
#[test]
fn pages_in_swap_stay_there() {
    let tree = Group::ready(Command::new(programs::tree()).args(["paged", "40"]));
    let swapped: u64 = Figures::of_tree(tree.pid()).iter().map(|it| it.swap).sum();
    if swapped == 0 {
        skip!("this kernel has no swap");
    }
    assert_untouched(tree.pid());
}

#[test]
fn huge_pages_that_a_fork_shares_stay_huge_and_shared() {
    let tree = Group::ready(Command::new(programs::tree()).args(["huge", "64"]));
    let huge: u64 = Figures::of_tree(tree.pid()).iter().map(|it| it.huge).sum();
    if huge == 0 {
        eprintln!("skipped: this kernel gave no huge pages");
        return;
    }
    assert_untouched(tree.pid());
}

#[test]
fn workers_of_gunicorn_keep_what_they_share_with_the_master() {
    let folder = harness::folder();
    let server = Group::start(programs::gunicorn(&folder).stdout(Stdio::null()));
    wait_until("eight workers and a master", || programs::pids_of(server.pid()).len() == 9);
    settle(server.pid());
    assert_untouched(server.pid());
}

/// Waits until nothing changes from one second to the next.
pub fn settle(root: i32) {
    let mut before = Figures::of_tree(root);
    wait_until("at rest", || {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let now = Figures::of_tree(root);
        let is_same = now.len() == before.len()
            && now
                .iter()
                .zip(&before)
                .all(|(now, before)| now.pid == before.pid && now.changes_since(before).is_empty());
        before = now;
        is_same
    });
}

/// The kernel charges in batches of 64 pages for each processor.
const BATCH: u64 = 64 * 4096 * 16;

fn assert_all_live(tight: &Cgroup, root: i32) {
    tight.limit(tight.usage() / 20 * 21).expect("a limit");
    let (before, processes) = (tight.usage(), programs::pids_of(root));
    programs::each(root, |verb| {
        assert_eq!(programs::pids_of(root), processes, "after {verb} in a tight cgroup");
        let after = tight.usage();
        assert!(after.abs_diff(before) <= before / 100 + BATCH, "after {verb}: charge {before} -> {after}");
    });
}

#[test]
fn no_process_of_a_forked_tree_dies_in_a_tight_cgroup() {
    let Some(tight) = Cgroup::new("look-tree") else { return };
    let mut command = Command::new(programs::tree());
    command.args(["small", "100"]);
    let tree = Group::ready(&mut tight.with(&command));
    assert_all_live(&tight, tree.pid());
}

#[test]
fn no_worker_of_gunicorn_dies_in_a_tight_cgroup() {
    let Some(tight) = Cgroup::new("look-gunicorn") else { return };
    let folder = harness::folder();
    let command = programs::gunicorn(&folder);
    let server = Group::start(tight.with(&command).stdout(Stdio::null()));
    wait_until("eight workers and a master", || programs::pids_of(server.pid()).len() == 9);
    settle(server.pid());
    assert_all_live(&tight, server.pid());
}

/// Two million blocks in one fastbin, in random order: a step from each to the next is one to another page.
#[test]
fn two_million_blocks_in_a_fastbin_are_found() {
    let blocks = 2_000_000;
    let program = Group::ready(Command::new(programs::tree()).args(["fast", &blocks.to_string()]));
    let target = Target::open(program.pid()).expect("it lives");
    let heap = glibc::read(&target).expect("a heap");
    assert!(heap.breakdown.adds_up());
    let found = heap.glibc.as_ref().expect("glibc's heap");
    assert!(found.quality.fastbins_complete && found.quality.counted, "{found:?}");
    // Seven of them are in the thread's cache.
    assert_eq!(heap.breakdown.fastbins.chunks, blocks - 7);
    assert!(found.trim.returns > blocks * 60);
}

/// Without time, the sizes are reported and no block is called live.
#[test]
fn what_there_is_no_time_for_is_not_counted() {
    let program = Group::ready(Command::new(programs::tree()).args(["fast", "500000"]));
    let open = || Target::open(program.pid()).expect("it lives");
    let all = glibc::read(&open()).expect("a heap");
    let start = Instant::now();
    let mut cut = 0;
    // From no time at all to enough: a look ends at any place.
    for step in 0..24 {
        let time = LOOK_WITHIN / (1 << (24 - step));
        match glibc::read(&open().until(Instant::now() + time)) {
            Ok(heap) => {
                assert!(heap.breakdown.adds_up());
                assert_eq!(heap.breakdown.system.bytes, all.breakdown.system.bytes);
                let quality = heap.glibc.expect("glibc's heap").quality;
                if !quality.counted {
                    cut += 1;
                    assert!(!quality.fastbins_complete || heap.breakdown.unread.bytes > 0);
                    // What is called live is: none but the large array's few neighbours.
                    assert!(heap.breakdown.live.bytes < 1 << 20, "{:?}", heap.breakdown);
                }
            }
            Err(error) => assert_eq!(error, Unreadable::Late.into()),
        }
    }
    assert!(cut > 0, "{:?}", start.elapsed());
}
