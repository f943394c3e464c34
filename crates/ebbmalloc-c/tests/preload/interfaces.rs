//! The exported functions and their edges: alignment, sizes, contents, errno, the figures, and the
//! C++ operators.

use crate::harness::{Flavour, Run, program};
use test_needs::needs;

fn passes(name: &str) {
    Run::preloaded(program(name, Flavour::Plain)).run().passed();
}

#[test]
fn alignment_up_to_a_gibibyte() {
    passes("alignment");
}

#[test]
fn mallocx_and_its_kin() {
    passes("extended");
}

#[test]
fn edge_sizes_and_errno() {
    passes("sizes");
}

#[test]
fn every_size_is_served_or_refused_at_a_bounded_cost() {
    // Its counter cannot start threads.
    Run::preloaded(program("huge", Flavour::Plain))
        .env("EBB_CONF", "background_thread:false")
        .run()
        .passed();
}

#[test]
fn every_size_where_the_address_space_is_limited() {
    for limit in ["--as=8589934592", "--data=1073741824"] {
        Run::preloaded(program("huge", Flavour::Plain))
            .through(["prlimit", limit])
            .env("EBB_CONF", "background_thread:false")
            .run()
            .passed();
    }
}

#[test]
fn operator_new_of_every_size_is_served_or_throws() {
    passes("huge_new");
    for limit in ["--as=8589934592", "--data=1073741824"] {
        Run::preloaded(program("huge_new", Flavour::Plain))
            .through(["prlimit", limit])
            .run()
            .passed();
    }
}

#[test]
fn contents_of_calloc_and_realloc() {
    passes("contents");
}

#[test]
fn contents_of_calloc_and_realloc_on_musl() {
    needs!("musl-tools");
    Run::preloaded(program("contents", Flavour::Musl)).run().passed();
}

#[test]
fn figures_are_true() {
    let outcome = Run::preloaded(program("figures", Flavour::Plain)).run().passed();
    assert!(!outcome.stderr.trim().is_empty(), "malloc_stats wrote nothing");
}

#[test]
fn new_and_delete() {
    passes("operators");
}
