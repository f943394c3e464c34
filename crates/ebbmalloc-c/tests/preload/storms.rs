//! Storms of new processes, from six threads at once, next to threads that hold libc's own locks; forks and partings in signal
//! handlers; and hundreds of threads that part at once.
//!
//! A round is 1000 processes. There are ten rounds, more of the scenes that cost less. With `EBB_LONG=1`
//! there are 1000, or as many as `EBB_STORM_ROUNDS` says. A hang is a failure within half a minute, with a line that says
//! what each thread was at.

use std::time::Duration;

use crate::harness::{Flavour, Run, long, program, shared_object};
use test_needs::needs;

/// `share` of ten rounds, or of the long number.
fn rounds(share: u32) -> u32 {
    let all = std::env::var("EBB_STORM_ROUNDS").ok();
    let all = all.map_or(1000, |number| number.parse().expect("a number of rounds"));
    if long() { (all * share / 10).max(1) } else { share }
}

/// The program has a watchdog of its own; the limit is for one that makes processes, but too slowly. A round takes
/// 3 to 9 s on two cores, and has ten times that. The 9 s are those of `stdio`, where nearly every fork waits 10 ms at the gate
/// for a thread that holds a lock of a file.
fn storm(scene: &str, share: u32) {
    let rounds = rounds(share);
    Run::preloaded(program("storm", Flavour::Plain))
        .args([scene, &rounds.to_string()])
        .arg(shared_object("storm_plugin", &[]))
        .limit(Duration::from_secs(120) + Duration::from_secs(90) * rounds)
        .run()
        .passed();
}

#[test]
fn six_threads_fork_while_threads_come_and_go() {
    storm("threads", 4);
}

#[test]
fn six_threads_fork_while_others_hold_the_locks_of_files() {
    storm("stdio", 2);
}

#[test]
fn six_threads_fork_while_others_hold_the_locks_of_loader_and_locale() {
    storm("loader", 2);
}

#[test]
fn six_threads_fork_and_handlers_of_fork_allocate() {
    storm("handlers", 2);
}

/// A check, no reproduction: no deadlock of fork with musl's own locks is known.
#[test]
fn six_threads_of_a_musl_program_fork_while_threads_come_and_go() {
    needs!("musl-tools");
    let rounds = if long() { "20" } else { "1" };
    Run::preloaded(program("storm", Flavour::Musl)).args(["threads", rounds]).run().passed();
}

fn in_handler(call: &str, times: &str) {
    Run::preloaded(program("handler_forks", Flavour::Plain)).args([call, times]).run().passed();
}

#[test]
fn signal_handler_forks_in_the_middle_of_malloc() {
    in_handler("fork", if long() { "20000" } else { "500" });
}

#[test]
fn signal_handler_parts_in_the_middle_of_malloc() {
    in_handler("unshare", if long() { "20000" } else { "500" });
}

fn hundreds(call: &str, rounds: &str) {
    Run::preloaded(program("holders", Flavour::Plain)).args([call, rounds]).run().passed();
}

#[test]
fn hundreds_of_threads_leave_the_shared_working_directory() {
    hundreds("unshare", "10");
}

#[test]
fn hundreds_of_threads_enter_a_namespace() {
    hundreds("setns", "10");
}

#[test]
fn hundreds_of_threads_promise_to_gain_no_privileges() {
    hundreds("prctl", "3");
}
