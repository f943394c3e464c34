//! `ebb why` and its kin on real processes. `collection` runs the labelled cases of
//! `tests/fixtures/why/cases.toml`; `manners` is about what happens around a verdict, `evidence` about what is not
//! known, `short` about what a terminal shows.

#[path = "../run/harness.rs"]
#[allow(dead_code, reason = "shared with the tests of ebb run, which use more of it")]
mod harness;

mod collection;
mod evidence;
mod manners;
mod own_mimalloc;
mod returns;
mod short;
mod subjects;
