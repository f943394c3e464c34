//! Seccomp filters: those that refuse what the allocator would like to use, with each of the two
//! usual errors, before the start and while it runs; and those that kill. And rights that are dropped.

use crate::harness::{Flavour, Run, program};

fn refused(calls: &str) {
    for error in ["EPERM", "ENOSYS"] {
        for moment in ["before", "late"] {
            Run::preloaded(program("refused", Flavour::Plain))
                .args([calls, error, moment])
                .run()
                .passed();
        }
    }
}

#[test]
fn process_madvise_refused() {
    refused("process_madvise");
}

#[test]
fn membarrier_refused() {
    refused("membarrier");
}

#[test]
fn clone_refused() {
    refused("clone");
}

#[test]
fn all_three_refused() {
    refused("process_madvise+membarrier+clone");
}

#[test]
fn files_and_sockets_kill() {
    Run::preloaded(program("killed", Flavour::Plain)).arg("files").run().passed();
}

#[test]
fn sandbox_that_kills_for_all_but_a_few_calls() {
    Run::preloaded(program("killed", Flavour::Plain)).arg("sandbox").run().passed();
}

#[test]
fn sandbox_whose_filter_the_allocator_does_not_see() {
    Run::preloaded(program("killed", Flavour::Plain)).arg("unseen").run().passed();
}

#[test]
fn no_thread_keeps_the_rights_that_the_program_gave_up() {
    Run::preloaded(program("sandboxed", Flavour::Plain)).run().passed();
}

#[test]
fn no_thread_stays_root_when_the_program_does_not() {
    Run::preloaded(program("dropped", Flavour::Plain)).run().passed();
}

#[test]
fn sandbox_that_kills_with_the_purger_off() {
    Run::preloaded(program("killed", Flavour::Plain))
        .arg("sandbox")
        .env("EBB_CONF", "purge:off")
        .run()
        .passed();
}
