//! Threads at their edges: destructors, freeing without allocating, coming and going.

use crate::harness::{Flavour, Run, program};
use test_needs::needs;

#[test]
fn thread_frees_after_its_destructors_ran() {
    Run::preloaded(program("thread_exit", Flavour::Plain)).run().passed();
}

#[test]
fn thread_only_frees() {
    Run::preloaded(program("free_only", Flavour::Plain)).run().passed();
}

#[test]
fn slabs_become_whole_while_their_pages_leave() {
    Run::preloaded(program("whole_slabs", Flavour::Plain)).run().passed();
}

#[test]
fn thousand_threads_come_and_go() {
    Run::preloaded(program("thread_churn", Flavour::Plain)).run().passed();
}

#[test]
fn musl_threads_exit_and_come_and_go() {
    needs!("musl-tools");
    for name in ["thread_exit", "thread_churn"] {
        Run::preloaded(program(name, Flavour::Musl)).run().passed();
    }
}
