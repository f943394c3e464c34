//! Limits of the address space and of data, before the start and lowered after it, and locked
//! memory. RLIMIT_DATA stands for overcommit_memory=2 as well, which is a setting of the whole
//! machine: both refuse the step that makes reserved memory writable, and neither counts
//! addresses that are only reserved.

use crate::harness::{Flavour, Run, program};

fn limited_before(resource: &str, use_of_it: &str) {
    Run::preloaded(program("address_limit", Flavour::Plain))
        .through(["prlimit", &format!("--{resource}=536870912")])
        .args(["before", resource, use_of_it])
        .run()
        .passed();
}

fn limited_after(resource: &str, use_of_it: &str) {
    Run::preloaded(program("address_limit", Flavour::Plain))
        .args(["after", resource, use_of_it])
        .run()
        .passed();
}

#[test]
fn address_space_limited_before_the_start() {
    limited_before("as", "within");
}

#[test]
fn address_space_limited_after_the_start() {
    limited_after("as", "within");
}

#[test]
fn address_space_exhausted_and_freed() {
    limited_before("as", "exhausted");
}

#[test]
fn data_limited_before_the_start() {
    limited_before("data", "within");
}

#[test]
fn data_limited_after_the_start() {
    limited_after("data", "within");
}

#[test]
fn data_exhausted_and_freed() {
    limited_before("data", "exhausted");
}

fn locked(how: &str) {
    // A reservation that is populated by mistake must fail the test, not the machine.
    Run::preloaded(program("locked", Flavour::Plain))
        .through(["prlimit", "--data=2147483648"])
        .arg(how)
        .run()
        .passed();
}

#[test]
fn all_memory_locked_from_the_start() {
    locked("future");
}

#[test]
fn all_memory_locked_on_fault() {
    locked("onfault");
}

#[test]
fn all_memory_locked_after_a_burst() {
    locked("late");
}
