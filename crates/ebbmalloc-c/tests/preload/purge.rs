//! The promise, polled: 90 % of a burst are back within 30 s, with no call by the program.

use crate::harness::{Flavour, Run, program};
use test_needs::needs;

fn returns(arguments: &[&str]) {
    Run::preloaded(program("burst", Flavour::Plain)).args(arguments).run().passed();
}

#[test]
fn threads_asleep() {
    returns(&["asleep"]);
}

#[test]
fn threads_gone() {
    returns(&["gone"]);
}

#[test]
fn threads_busy_elsewhere() {
    returns(&["busy"]);
}

#[test]
fn threads_asleep_and_process_madvise_refused() {
    returns(&["asleep", "process_madvise"]);
}

#[test]
fn threads_gone_and_membarrier_refused() {
    returns(&["gone", "membarrier"]);
}

#[test]
fn musl_program() {
    needs!("musl-tools");
    Run::preloaded(program("burst", Flavour::Musl)).arg("asleep").run().passed();
}
