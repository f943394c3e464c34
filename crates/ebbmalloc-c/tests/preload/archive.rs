//! The static archive, linked into programs for glibc and for musl: threads, their ends, and forks
//! must be handled there as well, where no weak name is ever resolved.

use std::process::Command;

use crate::harness::{Flavour, Run, archive, program};
use test_needs::needs;

/// The program's own malloc is the archive's.
fn holds_the_archive(flavour: Flavour, name: &str) {
    let program = program(name, flavour);
    let names = Command::new("nm").arg(&program).output().expect("nm runs");
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    assert!(
        names.contains("ebbmalloc"),
        "{} is not linked from {}",
        program.display(),
        archive().display()
    );
}

fn forks(flavour: Flavour) {
    holds_the_archive(flavour, "fork_storm");
    Run::bare(program("fork_storm", flavour)).arg("200").run().passed();
}

fn threads_and_contents(flavour: Flavour) {
    for name in ["thread_exit", "thread_churn", "contents"] {
        Run::bare(program(name, flavour)).run().passed();
    }
}

fn burst_returns(flavour: Flavour) {
    Run::bare(program("burst", flavour)).arg("asleep").run().passed();
}

#[test]
fn static_glibc_program_forks() {
    forks(Flavour::StaticGlibc);
}

#[test]
fn static_musl_program_forks() {
    needs!("musl-tools");
    forks(Flavour::StaticMusl);
}

#[test]
fn static_glibc_program_has_threads() {
    threads_and_contents(Flavour::StaticGlibc);
}

#[test]
fn static_musl_program_has_threads() {
    needs!("musl-tools");
    threads_and_contents(Flavour::StaticMusl);
}

#[test]
fn static_glibc_program_gives_a_burst_back() {
    burst_returns(Flavour::StaticGlibc);
}

#[test]
fn static_musl_program_gives_a_burst_back() {
    needs!("musl-tools");
    burst_returns(Flavour::StaticMusl);
}
