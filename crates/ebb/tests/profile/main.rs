//! `ebb profile` on real processes that were started without a setting: the leak is named, the sums are right, and what
//! cannot work is one line.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

mod python;

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared by all test programs")]
mod harness;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::{Finished, Subject, assert_refused, ebb, output};
use serde_json::Value;
use tempfile::TempDir;
use test_needs::{needs, skip};

/// Blocks of known sizes from functions of known names, at each line that is read; those from before are no part.
const KNOWN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#define APART __attribute__((noinline))
static void *volatile last;
static void keep(void **block) { block[0] = (void *)last; last = block; }
APART void *small(void) { return malloc(100); }
APART void *middle(void) { return calloc(1, 5000); }
APART void *large(void) { return malloc(200000); }
APART void *gone(void) { return malloc(64); }
int main(void) {
    for (int i = 0; i < 50000; i++) keep(small());
    puts("ready"); fflush(stdout);
    while (getchar() == '\n') {
        for (int i = 0; i < 200000; i++) { keep(small()); free(gone()); }
        for (int i = 0; i < 4000; i++) keep(middle());
        for (int i = 0; i < 100; i++) keep(large());
    }
}
"#;

/// A loop that leaks slowly next to much that it frees.
const LEAK: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define APART __attribute__((noinline))
APART void *planted(void) { return malloc(1000); }
APART void *cached(int i) { return malloc(64 + i % 700); }
static void *cache[5000];
static void *volatile sink;
int main(void) {
    puts("ready"); fflush(stdout);
    for (;;) {
        for (int i = 0; i < 5000; i++) { free(cache[i]); cache[i] = cached(i); }
        for (int i = 0; i < 50; i++) sink = planted();
        usleep(5000);
    }
}
"#;

const RUST: &str = r#"
struct Session { _id: u64, _data: Vec<u8> }
#[inline(never)]
fn planted(all: &mut Vec<Session>, id: u64) { all.push(Session { _id: id, _data: vec![1; 2000] }); }
fn main() {
    println!("ready");
    let mut all = Vec::with_capacity(1 << 20);
    for id in 0.. {
        planted(&mut all, id);
        std::hint::black_box(vec![2u8; 3000]);
        if id % 100 == 0 { std::thread::sleep(std::time::Duration::from_millis(5)); }
    }
}
"#;

const PYTHON: &str = "
import time
print('ready', flush=True)
kept = []
while True:
    for _ in range(50):
        kept.append(bytes(20000))
        bytearray(30000)
    time.sleep(0.005)
";

fn c_program(folder: &TempDir, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    harness::compile(folder, "gcc", name, source, &[&["-O1", "-g"], flags].concat())
}

/// Started under the preload, with no setting.
fn started(command: &mut Command) -> Subject {
    for name in ["MALLOC_CONF", "EBB_CONF"] {
        command.env_remove(name);
    }
    Subject::start(command.env("LD_PRELOAD", harness::ebbmalloc()))
}

fn profile(pid: &str, options: &[&str]) -> Finished {
    Finished::by(ebb().args(["profile", pid]).args(options))
}

fn begun(pid: &str, options: &[&str]) -> Child {
    let mut command = ebb();
    command.args(["profile", pid, "--json"]).args(options);
    command.stdout(Stdio::piped()).spawn().expect("ebb")
}

/// Of the stacks that have `function` as their first: live and allocated bytes, and the errors of both.
fn sums(profile: &Value, function: &str) -> [f64; 4] {
    let mut sums = [0.0; 4];
    for stack in profile["stacks"].as_array().expect("stacks") {
        if stack["frames"][0]["function"] == function {
            for (at, (part, name)) in
                [("live", "bytes"), ("allocated", "bytes"), ("live", "error_bytes"), ("allocated", "error_bytes")]
                    .iter()
                    .enumerate()
            {
                sums[at] += stack[part][name].as_f64().expect("a figure");
            }
        }
    }
    sums
}

#[test]
fn sums_by_stack_are_those_of_the_program() {
    let folder = harness::folder();
    let mut known = started(&mut Command::new(c_program(&folder, "known", KNOWN, &[])));
    let child = begun(&known.pid(), &["--for", "4s", "--interval", "16KiB"]);
    std::thread::sleep(Duration::from_millis(500));
    // The first line may be served from caches that have not been marked yet.
    known.tell();
    std::thread::sleep(Duration::from_millis(1500));
    known.tell();
    let done = child.wait_with_output().expect("ebb");
    let profile: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    // 112 bytes of the 200,000 blocks of 100; 5120 and 200704 are the other sizes.
    for (function, bytes) in [("small", 200_000.0 * 112.0), ("middle", 4_000.0 * 5_120.0), ("large", 100.0 * 200_704.0)]
    {
        let [live, allocated, error, _] = sums(&profile, function);
        // Of one round or two: the first starts the profile.
        let rounds = (live / bytes).round();
        assert!((1.0..=2.0).contains(&rounds), "{function}: {live} of {bytes}");
        let most = 4.0 * error + 0.1 * bytes;
        assert!((live - rounds * bytes).abs() < most, "{function}: {live} of {bytes} ±{error}");
        assert!((allocated - live).abs() < 1.0, "{function}: nothing was freed");
    }
    let [live, allocated, ..] = sums(&profile, "gone");
    assert!(live < 1e6 && allocated > 10e6, "{live} {allocated}");
    // 50,000 blocks from before are in the heap and in no stack.
    let all = profile["live_bytes"].as_f64().expect("a figure");
    assert!(profile["heap_live_bytes"].as_f64().expect("a figure") > all, "{profile}");
    // The next one begins with nothing.
    let next = begun(&known.pid(), &["--for", "2s"]);
    std::thread::sleep(Duration::from_millis(500));
    known.tell();
    let next = next.wait_with_output().expect("ebb");
    let next: Value = serde_json::from_slice(&next.stdout).expect("JSON");
    assert!(next["live_bytes"].as_f64().expect("a figure") < 1.5 * all, "{next}");
}

fn first(text: &str) -> &str {
    let stack = text.split("blocks, from\n").nth(1).unwrap_or_else(|| panic!("no stack in {text}"));
    stack.lines().next().expect("a line").trim()
}

#[test]
fn a_planted_leak_is_the_first_stack_in_c_rust_and_python() {
    needs!("golang-go");
    let folder = harness::folder();
    let leak = started(&mut Command::new(c_program(&folder, "leak", LEAK, &[])));
    let files = ["a.pb.gz", "b.pb.gz"].map(|name| folder.path().join(name));
    for file in &files {
        let done = profile(&leak.pid(), &["--for", "3s", "-o", file.to_str().expect("a path")]);
        done.expect(0, &[], &[]);
        assert!(first(&done.stdout).starts_with("planted leak.c:"), "{}", done.all());
    }
    let mut go = Command::new("go");
    let top = Finished::by(go.args(["tool", "pprof", "-top", "-nodecount=3"]).arg(&files[0]));
    top.expect(0, &["Type: inuse_space", " planted"], &[]);
    let page = folder.path().join("page.html");
    let done = profile(&leak.pid(), &["--for", "1s", "--tree", "-o", page.to_str().expect("a path")]);
    done.expect(0, &["planted leak.c:", "main leak.c:"], &[]);
    let diff = Finished::by(ebb().arg("diff").args(&files));
    diff.expect(0, &["MB live by samples"], &[]);

    let source = folder.path().join("rust.rs");
    std::fs::write(&source, RUST).expect("the source");
    let program = folder.path().join("rust");
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "-O", "-g", "-o"]).arg(&program).arg(&source);
    Finished::by(&mut rustc).expect(0, &[], &[]);
    let rust = started(&mut Command::new(program));
    let done = profile(&rust.pid(), &["--for", "3s"]);
    assert!(first(&done.stdout).contains("planted rust.rs:"), "{}", done.all());

    let python = started(Command::new("python3").args(["-c", PYTHON]));
    let done = profile(&python.pid(), &["--for", "3s", "-o", files[0].to_str().expect("a path")]);
    assert!(first(&done.stdout).starts_with("<module> <string>:7"), "{}", done.all());
    let mut go = Command::new("go");
    let top = Finished::by(go.args(["tool", "pprof", "-top", "-lines"]).arg(&files[0]));
    top.expect(0, &["<module> <string>:7"], &[]);
    let done = profile(&python.pid(), &["--for", "2s", "--native"]);
    assert!(done.stdout.contains("_PyEval_") && !done.stdout.contains("<string>"), "{}", done.all());
}

#[test]
fn stripped_and_deleted_programs_have_what_can_be_shown() {
    let folder = harness::folder();
    let program = c_program(&folder, "stripped", LEAK, &["-s"]);
    let stripped = started(&mut Command::new(&program));
    let done = profile(&stripped.pid(), &["--for", "2s"]);
    done.expect(0, &["stripped+0x", "stacks have functions without a name"], &[]);

    let program = c_program(&folder, "deleted", LEAK, &[]);
    let deleted = started(&mut Command::new(&program));
    std::fs::remove_file(&program).expect("the program");
    let done = profile(&deleted.pid(), &["--for", "2s"]);
    assert!(first(&done.stdout).starts_with("planted leak.c:") || done.stdout.contains("planted"), "{}", done.all());

    // Another program in its place names nothing.
    let program = c_program(&folder, "replaced", LEAK, &["-s"]);
    let replaced = started(&mut Command::new(&program));
    std::fs::remove_file(&program).expect("the program");
    harness::copy_program(Path::new("/bin/true"), &program);
    let done = profile(&replaced.pid(), &["--for", "2s"]);
    done.expect(0, &["replaced", "MB"], &[]);
}

#[test]
fn what_has_no_profile_is_one_line() {
    let folder = harness::folder();
    let program = c_program(&folder, "glibc", LEAK, &[]);
    let glibc = Subject::start(Command::new(&program).env_remove("LD_PRELOAD"));
    let words = ["runs on glibc", "ebb why -v", "ebb run --", "glibc"];
    assert_refused(&output(ebb().args(["profile", &glibc.pid()])), 31, &words);

    let leak = started(&mut Command::new(&program));
    let child =
        ebb().args(["profile", &leak.pid(), "--for", "30s"]).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn();
    std::thread::sleep(Duration::from_millis(500));
    let pid = leak.pid();
    drop(leak);
    let done = child.expect("ebb").wait_with_output().expect("ebb");
    assert_refused(&done, 20, &[&format!("{pid} ended before it was read")]);

    let idle = started(&mut Command::new(c_program(&folder, "idle", KNOWN, &[])));
    let done = output(ebb().args(["profile", &idle.pid(), "--for", "300ms"]));
    assert_refused(&done, 20, &["has not allocated anything since it was asked"]);

    let not = folder.path().join("not.pb.gz");
    std::fs::write(&not, "no").expect("a file");
    let done = output(ebb().arg("diff").args([&not, &not]));
    assert_refused(&done, 64, &["not a pprof file"]);
    let done = output(ebb().args(["profile", "1", "--interval", "1000"]));
    assert_eq!(done.status.code(), Some(64));
}

/// Two tools share a profile: neither resets the other's, and the last to leave ends it.
#[test]
fn two_profiles_at_once_are_one() {
    let folder = harness::folder();
    let leak = started(&mut Command::new(c_program(&folder, "shared", LEAK, &[])));
    let first = begun(&leak.pid(), &["--for", "5s"]);
    std::thread::sleep(Duration::from_secs(2));
    let second = begun(&leak.pid(), &["--for", "6s"]);
    let [first, second] = [first, second].map(|it| it.wait_with_output().expect("ebb"));
    let [first, second] = [first, second].map(|it| serde_json::from_slice::<Value>(&it.stdout).expect("JSON"));
    let note = second["notes"].to_string();
    assert!(note.contains("another tool began this profile, 2 s earlier"), "{note}");
    assert!(second["seconds"].as_f64().is_some_and(|it| it > 7.0), "{second}");
    let [one, two] = [&first, &second].map(|it| sums(it, "planted")[0]);
    assert!(two > one && one > 0.0, "{one} {two}");
    let third = begun(&leak.pid(), &["--for", "2s"]).wait_with_output().expect("ebb");
    let third: Value = serde_json::from_slice(&third.stdout).expect("JSON");
    assert!(sums(&third, "planted")[0] < one && third["notes"] == serde_json::json!([]), "{third}");
}

#[test]
fn a_profile_that_is_kept_is_in_snapshots_and_in_a_watch() {
    let folder = harness::folder();
    let mut command = Command::new(c_program(&folder, "kept", LEAK, &[]));
    command.env_remove("MALLOC_CONF").env("EBB_CONF", "profile:on");
    let leak = Subject::start(command.env("LD_PRELOAD", harness::ebbmalloc()));
    let files = ["a.json", "b.json"].map(|name| folder.path().join(name));
    for file in &files {
        Finished::by(ebb().args(["snap", &leak.pid(), "-o"]).arg(file)).expect(0, &[], &[]);
        std::thread::sleep(Duration::from_secs(3));
    }
    Finished::by(ebb().arg("diff").args(&files)).expect(0, &["  planted\n  main\n"], &[]);
    let watched = Finished::by(ebb().args(["why", "--watch", "4s", &leak.pid()]));
    assert!(watched.stdout.contains("  planted\n  main\n"), "{}", watched.all());
}

#[test]
fn bpftrace_sees_sampled_blocks_at_the_probes() {
    needs!("bpftrace");
    if !nix::unistd::Uid::effective().is_root() || !Path::new("/sys/kernel/btf/vmlinux").exists() {
        skip!("no right to trace");
    }
    let folder = harness::folder();
    let leak = started(&mut Command::new(c_program(&folder, "traced", LEAK, &[])));
    let library = harness::ebbmalloc();
    let probe = |name| format!("usdt:{}:otel_memory:{name}", library.display());
    let text = format!(
        "{} {{ @n = count(); @weighted = sum(arg2); }} {} {{ @freed = count(); }} interval:s:4 {{ exit(); }}",
        probe("alloc"),
        probe("free")
    );
    let done = Finished::by(Command::new("bpftrace").args(["-p", &leak.pid(), "-e", &text]));
    let figure = |name: &str| -> f64 {
        let line = done.stdout.lines().find_map(|it| it.strip_prefix(name));
        line.and_then(|it| it.trim().parse().ok()).unwrap_or_else(|| panic!("{}", done.all()))
    };
    // 10 MB a second stay, and some hundred come and go.
    assert!(figure("@freed:") > 0.0 && figure("@weighted:") > 30e6, "{}", done.all());
    assert!(figure("@weighted:") > figure("@n:") * 500e3, "{}", done.all());
}

#[test]
fn a_scraper_gets_profiles_of_a_watched_process() {
    needs!("golang-go");
    let folder = harness::folder();
    let leak = started(&mut Command::new(c_program(&folder, "scraped", LEAK, &[])));
    let mut watch = ebb();
    watch.args(["watch", &leak.pid(), "--listen", "127.0.0.1:0"]);
    let mut watch = watch.stderr(Stdio::piped()).spawn().expect("ebb");
    let mut line = String::new();
    let stderr = watch.stderr.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut line).expect("a line");
    let address = line.split("listening on ").nth(1).expect("an address").trim();
    let address = address.trim_end_matches("/metrics");
    let top = |path: &str| {
        let mut go = Command::new("go");
        go.env("PPROF_TMPDIR", folder.path());
        Finished::by(go.args(["tool", "pprof", "-top"]).arg(format!("{address}{path}")))
    };
    top("/debug/pprof/heap").expect(0, &[], &[]);
    std::thread::sleep(Duration::from_secs(3));
    top("/debug/pprof/heap").expect(0, &["Type: inuse_space", " planted"], &[]);
    top("/debug/pprof/allocs").expect(0, &["Type: alloc_space", " cached"], &[]);
    watch.kill().expect("ebb");
    watch.wait().expect("ebb");
}

#[test]
fn a_command_is_profiled_from_its_start_to_its_end() {
    let folder = harness::folder();
    let source = LEAK.replace("for (;;)", "for (int n = 0; n < 600; n++)");
    let program = c_program(&folder, "short", &source, &[]);
    let command = ["profile", "--interval", "64KiB", "--"];
    let mut ebb = ebb();
    ebb.env("EBB_LIB", harness::ebbmalloc());
    let done = Finished::by(ebb.args(command).arg(&program));
    assert!(first(&done.stdout).starts_with("planted short.c:"), "{}", done.all());
}
