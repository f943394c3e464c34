//! Huge pages that a program asks for on its own blocks end with the blocks.

use crate::harness::{Flavour, Run, program};

fn asked(how: &str) {
    Run::preloaded(program("huge_asked", Flavour::Plain)).arg(how).run().passed();
}

#[test]
fn a_block_that_is_freed() {
    asked("free");
}

#[test]
fn what_a_smaller_block_gives_back() {
    asked("shrink");
}

#[test]
fn a_block_that_moves() {
    asked("move");
}

/// The control: a wish that the allocator does not hear stays with the addresses.
#[test]
fn asked_without_the_wrapper() {
    asked("raw");
}
