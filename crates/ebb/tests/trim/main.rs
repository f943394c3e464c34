//! `ebb trim` on real processes. `services`: what is foreseen, refused and measured; nothing is lost under
//! load, nor when `ebb` is killed; `remote`: by CPython itself.
//!
//! 50 calls each, 1000 with `EBB_LONG`.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared by all test programs")]
mod harness;

mod remote;
mod services;

use harness::{Finished, words};
use serde_json::Value;

/// `ebb trim --json` of a process, with the words of `options`: its exit code and the facts of the process.
fn trim(pid: &str, options: &str) -> (i32, Value) {
    let mut command = harness::ebb();
    let done = Finished::by(command.args(["trim", pid, "--json"]).args(words(options)));
    (done.code.expect("a status"), done.json()["processes"][0].clone())
}

/// What `ebb trim` says of a process in words.
fn text(pid: &str, options: &str) -> Finished {
    Finished::by(harness::ebb().args(["trim", pid, "--wait", "60s"]).args(words(options)))
}

/// That a trim ended with this code, and that a fact of the process is this word.
#[track_caller]
fn assert_fact((code, facts): &(i32, Value), expected: i32, name: &str, word: &str) {
    assert_eq!((*code, facts[name].as_str()), (expected, Some(word)), "{facts}");
}

#[track_caller]
fn bytes(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no figure: {value}"))
}
