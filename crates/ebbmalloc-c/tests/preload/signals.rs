//! A signal handler that allocates and frees while its thread is inside malloc.

use crate::harness::{Flavour, Run, long, program};

/// 10^6 deliveries, one after each instruction of the allocation functions.
#[cfg(target_arch = "x86_64")]
#[test]
fn handler_allocates_at_every_instruction() {
    // A thread that the allocator starts inside a stepped call would inherit the trap flag with
    // SIGTRAP blocked, which kills: no debugger steps like this. The storm below has the purger.
    Run::preloaded(program("signal_step", Flavour::Plain))
        .env("EBB_CONF", "purge:off")
        .run()
        .passed();
}

/// Asynchronous deliveries from a sibling, with the purger at work.
#[test]
fn handler_allocates_in_a_storm_of_signals() {
    Run::preloaded(program("signal_storm", Flavour::Plain))
        .arg(if long() { "1000000" } else { "100000" })
        .run()
        .passed();
}
