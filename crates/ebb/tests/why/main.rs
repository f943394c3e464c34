//! `ebb why` and its kin on real processes. `collection` runs the labelled cases of
//! `tests/fixtures/why/cases.toml`; `manners` is about what happens around a verdict, `evidence` about what is not
//! known, `short` about what a terminal shows, `pools` about workers side by side, `advice` about what comes true, `containers` about rights.

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared with all test programs")]
mod harness;

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod advice;
mod collection;
mod containers;
mod evidence;
mod manners;
mod pools;
mod short;
