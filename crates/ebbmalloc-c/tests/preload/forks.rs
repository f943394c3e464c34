//! Every way to a new process: fork among busy threads, the forks that run no handlers, vfork,
//! posix_spawn and exec; and the child's own return of memory.

use crate::harness::{Flavour, Run, long, program};
use test_needs::needs;

fn storm(flavour: Flavour, forks: &str) {
    Run::preloaded(program("fork_storm", flavour)).arg(forks).run().passed();
}

#[test]
fn threaded_process_forks_a_thousand_times() {
    storm(Flavour::Plain, if long() { "5000" } else { "1000" });
}

#[test]
fn threaded_musl_process_forks() {
    needs!("musl-tools");
    storm(Flavour::Musl, if long() { "2000" } else { "200" });
}

fn new_processes(form: &str, turns: &str) {
    Run::preloaded(program("spawn_forms", Flavour::Plain)).args([form, turns]).run().passed();
}

#[test]
fn raw_clone_child_allocates() {
    new_processes("clone", "40");
}

#[test]
fn child_of_fork_without_handlers_allocates() {
    new_processes("_Fork", "40");
}

/// The purger ticks so often that about every tenth child is copied while it is at work.
fn torn(flavour: Flavour, threads: &str) {
    Run::preloaded(program("fork_torn", flavour))
        .args([if long() { "1000" } else { "60" }, threads])
        .env("EBB_CONF", "dirty_decay_ms:20")
        .run()
        .passed();
}

#[test]
fn child_copied_while_the_purger_is_at_work_allocates() {
    torn(Flavour::Plain, "0");
}

#[test]
fn child_copied_while_threads_allocate_allocates() {
    torn(Flavour::Plain, "2");
}

#[test]
fn musl_child_copied_while_the_purger_is_at_work_allocates() {
    needs!("musl-tools");
    torn(Flavour::Musl, "0");
}

#[test]
fn vfork_and_exec() {
    new_processes("vfork", "100");
}

#[test]
fn fork_and_exec() {
    new_processes("fork_exec", "100");
}

#[test]
fn posix_spawn() {
    new_processes("posix_spawn", "100");
}

#[test]
fn forked_child_gives_its_burst_back() {
    Run::preloaded(program("fork_purge", Flavour::Plain)).arg("fork").run().passed();
}

#[test]
fn raw_clone_child_gives_its_burst_back() {
    Run::preloaded(program("fork_purge", Flavour::Plain)).arg("clone").run().passed();
}
