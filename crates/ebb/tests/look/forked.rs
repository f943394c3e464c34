//! Processes that share memory since a fork.

use std::process::{Command, Stdio};

use crate::figures::{self, Figures};
use crate::harness;
use crate::programs::{self, Group, wait_until};
use crate::verbs;
use test_needs::skip;

/// Calls each verb on `root` and holds what the kernel says of all its processes against what it said before. They are stopped, so
/// that nothing that they do themselves changes it.
pub fn assert_untouched(root: i32) {
    for pid in figures::tree(root) {
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("it lives");
    }
    figures::clear_soft_dirty(root);
    let before = Figures::of_tree(root);
    verbs::each(root, |verb| figures::assert_unchanged(&before, root, verb));
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
    wait_until("eight workers and a master", || figures::tree(server.pid()).len() == 9);
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
