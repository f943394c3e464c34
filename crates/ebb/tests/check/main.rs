//! `ebb check` with real processes, real file systems and real Dockerfiles: every named result is
//! brought about, not imitated.

// Half of it is for `ebb run`.
#[allow(dead_code)]
#[path = "../harness/mod.rs"]
mod harness;

mod files;
mod processes;
mod started;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use harness::{Subject, ebb, output, stderr, stdout};

/// A process that has said that it is ready, ended with the test.
struct Running(Subject);

impl Running {
    /// Starts it and waits for its first line. Its stdin stays open as long as it is wanted.
    fn start(command: &mut Command) -> Self {
        for name in ["LD_PRELOAD", "MALLOC_CONF", "EBB_CONF"] {
            if !command.get_envs().any(|(set, _)| set == name) {
                command.env_remove(name);
            }
        }
        // The loader says there what it ignores.
        let mut subject = Subject::spawn(command.stderr(Stdio::null()));
        // Some say no more than that they are there.
        subject.line();
        assert!(matches!(subject.child.try_wait(), Ok(None)), "{command:?} has ended");
        Self(subject)
    }

    /// Its number, as an argument.
    fn pid(&self) -> String {
        self.0.pid()
    }
}

/// `ebb check --json` with these arguments, and its exit code.
fn check(arguments: &[&str]) -> (Value, i32) {
    parsed(&output(ebb().args(["check", "--json"]).args(arguments)))
}

/// What `ebb check --json` said, and its exit code.
fn parsed(output: &Output) -> (Value, i32) {
    let text = stdout(output);
    let said = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {}", stderr(output)));
    (said, output.status.code().expect("an exit code"))
}

/// The identifiers of the findings with that severity.
fn found<'a>(said: &'a Value, severity: &str) -> Vec<&'a str> {
    let findings = said["findings"].as_array().expect("findings");
    let of = findings.iter().filter(|it| it["severity"] == severity);
    of.map(|it| it["id"].as_str().expect("an id")).collect()
}

/// Asserts that this is the only error, and that it counts for the exit code.
#[track_caller]
fn assert_error(arguments: &[&str], id: &str) -> Value {
    let (said, code) = check(arguments);
    assert_eq!(found(&said, "error"), [id], "{said:#}");
    assert_eq!(code, 14);
    assert_eq!(said["in_charge"], false);
    said
}

#[track_caller]
fn assert_fine(arguments: &[&str]) -> Value {
    let (said, code) = check(arguments);
    assert_eq!(found(&said, "error"), [""; 0], "{said:#}");
    assert_eq!(code, 0, "{said:#}");
    assert_eq!(said["in_charge"], true);
    said
}

/// A copy of a file that says it is for another processor.
fn for_another_machine(file: &Path, copy: &Path) {
    const E_MACHINE_AT: usize = 18;
    const EM_AARCH64: u8 = 183;
    let mut bytes = std::fs::read(file).expect("the file");
    bytes[E_MACHINE_AT] = EM_AARCH64;
    std::fs::write(copy, bytes).expect("the copy");
}
