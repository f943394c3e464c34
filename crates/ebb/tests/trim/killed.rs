//! `ebb` is killed at any moment: the process lives on, and nothing that it waits for has gone wrong.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness;
use crate::rounds::Rounds;

/// From its start up to so long after `ebb` lives: it takes a fifth of that to come to its first call.
const LONGEST_LIFE_MS: u64 = 400;

fn times() -> u64 {
    match std::env::var_os("EBB_LONG") {
        Some(_) => 100,
        None => 10,
    }
}

/// The program that checks its own waits, shared with ebb-inject's tests.
fn program(folder: &tempfile::TempDir) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ebb-inject/tests/programs/waits.c");
    let source = std::fs::read_to_string(source).expect("the source");
    let flags = ["-O2", "-mavx2", "-mno-red-zone", "-pthread"];
    harness::compile(folder, "gcc", "waits", &source, &flags)
}

fn lives_on(arguments: &[&str]) {
    let folder = harness::folder();
    let mut child = Command::new(program(&folder))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut answers = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut answer = || answers.next().expect("it lives").expect("a line");
    assert_eq!(answer(), "ready");
    for time in 0..times() {
        let rounds = Rounds::start(&child.id().to_string());
        // Spread over its life, with no need of chance.
        let life = time * 157 % LONGEST_LIFE_MS;
        std::thread::sleep(Duration::from_millis(life));
        drop(rounds);
        let mut ask = || {
            child.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it lives");
            let answer = answer();
            let mut words = answer.splitn(3, ' ').map(str::to_owned);
            let made: u64 = words.next().expect("rounds").parse().expect("a number");
            let rest: Vec<String> = words.collect();
            assert_eq!(rest[0], "0", "killed after {life} ms: {rest:?}");
            made
        };
        let before = ask();
        std::thread::sleep(Duration::from_millis(60));
        assert!(ask() > before, "killed after {life} ms: it stands still");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn threads_go_on_when_ebb_is_killed() {
    lives_on(&[]);
}

#[test]
fn the_only_thread_goes_on_when_ebb_is_killed() {
    for kind in ["poll", "registers"] {
        lives_on(&["alone", kind]);
    }
}
