//! `ebb run` with real programs: what it starts, what it refuses, what `--verify` says, and the
//! reading of process trees that it shares with trials.

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared by all test programs")]
mod harness;

mod hosts;
mod refuse;
mod start;
mod verify;
