//! Storms of new processes, from six threads at once, beside threads that hold libc's own locks; forks and partings in signal
//! handlers; and hundreds of threads that part at once.
//!
//! A round is 1000 processes. Ten rounds, over the storms by what they cost, took 38 s on two busy cores. With `EBB_LONG=1`
//! they are 1000, or as many as `EBB_STORM_ROUNDS` says. A hang is a failure within half a minute, with a line that says
//! what each thread was at.

use crate::harness::{Flavour, Run, long, program, shared_object};

/// `share` of ten rounds, or of the long number.
fn rounds(share: u64) -> String {
    let all = std::env::var("EBB_STORM_ROUNDS").ok();
    let all = all.map_or(1000, |number| number.parse().expect("a number of rounds"));
    let rounds = if long() {
        (all * share / 10).max(1)
    } else {
        share
    };
    rounds.to_string()
}

fn storm(scene: &str, share: u64) {
    Run::preloaded(program("storm", Flavour::Plain))
        .args([scene, &rounds(share)])
        .arg(shared_object("storm_plugin", &[]))
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

#[test]
fn musl_six_threads_fork_while_threads_come_and_go() {
    let rounds = if long() { "20" } else { "1" };
    Run::preloaded(program("storm", Flavour::Musl))
        .args(["threads", rounds])
        .run()
        .passed();
}

fn in_handler(call: &str, times: &str) {
    Run::preloaded(program("handler_forks", Flavour::Plain))
        .args([call, times])
        .run()
        .passed();
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
    Run::preloaded(program("holders", Flavour::Plain))
        .args([call, rounds])
        .run()
        .passed();
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
