//! `ebb explain` on a core dump of the kernel's and on a running process; what cannot work is one line.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared by all test programs")]
mod harness;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use harness::{Finished, Subject, assert_refused, ebb, folder, output};
use tempfile::TempDir;
use test_needs::skip;

/// Writes to a freed block with sampled guards, or waits with two neighbours, the first of them freed.
const MISUSE: &str = r#"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
static char *volatile block;
int main(int count, char **arguments) {
    char *first = malloc(40), *second = malloc(40);
    free(first);
    printf("ready\n%p %p\n", (void *)first, (void *)second); fflush(stdout);
    if (count > 1) getchar();
    do block = malloc(100); while (malloc_usable_size(block) != 100);
    free(block);
    block[7] = 1;
}
"#;

fn program(folder: &TempDir) -> PathBuf {
    harness::compile(folder, "gcc", "explained", MISUSE, &["-O0"])
}

/// The core dump of the program, which ends by its misuse.
fn core(folder: &TempDir) -> PathBuf {
    let shell = format!("ulimit -c unlimited && exec {}", program(folder).display());
    let mut command = Command::new("sh");
    command.args(["-c", &shell]).current_dir(folder).env("LD_PRELOAD", harness::ebbmalloc());
    output(&mut command);
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let mut cores = entries.filter(|path| path.to_string_lossy().contains("core"));
    cores.next().expect("a core dump")
}

#[test]
fn a_core_dump_tells_who_freed_the_block_that_was_written_to() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with(['|', '/']) {
        skip!("core dumps go elsewhere");
    }
    let folder = folder();
    let core = core(&folder);
    let text =
        ["Ended by SIGSEGV", "byte 7 of block", "100 bytes, guarded block, freed", "freed by thread", "explained+0x"];
    Finished::by(ebb().arg("explain").arg(&core)).expect(0, &text, &[]);
    let json = Finished::by(ebb().arg("explain").arg(&core).arg("--json")).json();
    assert_eq!(json["addresses"][0]["history"][1]["what"], "freed");
    assert_eq!(json["signal"], 11);

    let bytes = fs::read(&core).unwrap();
    let cut = folder.path().join("cut");
    fs::write(&cut, &bytes[..bytes.len() / 8]).unwrap();
    let refused = output(ebb().arg("explain").arg(&cut));
    assert!(!refused.status.success() || harness::stderr(&refused).contains("are missing"));
    let mut other = bytes;
    other[18] = 0x28;
    fs::write(&cut, other).unwrap();
    assert_refused(&output(ebb().arg("explain").arg(&cut)), 31, &["another architecture"]);
}

#[test]
fn a_running_process_tells_of_a_block_and_its_neighbours() {
    let folder = folder();
    let mut subject =
        Subject::start(Command::new(program(&folder)).arg("wait").env("LD_PRELOAD", harness::ebbmalloc()));
    let line = subject.line();
    let (first, second) = line.trim().split_once(' ').unwrap();
    let pid = subject.pid();
    let text = ["48 bytes, freed, in a thread's cache", "48 bytes, live", "not mapped"];
    Finished::by(ebb().args(["explain", &pid, first, second, "0x10"])).expect(0, &text, &[]);
}

#[test]
fn what_is_no_core_and_no_process_is_refused() {
    for (target, code, words) in [
        ("/bin/sh", 64, "not a core dump"),
        ("/nonexistent", 64, "No such file"),
        ("/", 64, "not a regular file"),
        ("2147483647", 64, "no process"),
    ] {
        assert_refused(&output(ebb().args(["explain", target, "0x10"])), code, &[words]);
    }
    let pid = std::process::id().to_string();
    assert_refused(&output(ebb().args(["explain", &pid, "0x10"])), 31, &["no ebbmalloc"]);
    assert_refused(&output(ebb().args(["explain", &pid])), 64, &["no address"]);
}
