//! What `ebb run --verify` says, and that the program does not notice it; the reading of a real process tree.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use ebb_process::Tree;
use nix::sys::signal::Signal;
use serde_json::Value;
use test_needs::{needs, skip};

use crate::harness::{Subject, *};

/// Runs a command to its end under `--verify --json`: its output and exit code. The looks go on until it ends, since a
/// busy machine may take longer to start it than they last by default.
pub fn verify(allocator: &str, command: &[&str]) -> (Value, Option<i32>) {
    let options = ["--verify", "--verify-for", "5m", "--json", "--"];
    said(ebb().args(["run", "-a", allocator]).args(options).args(command))
}

fn said(ebb: &mut Command) -> (Value, Option<i32>) {
    let Finished { code, stderr, .. } = Finished::by(ebb);
    let said = serde_json::from_str(&stderr).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    (said, code)
}

/// The entry of the first process whose program ends in `name`.
pub fn process<'a>(said: &'a Value, name: &str) -> &'a Value {
    said["processes"]
        .as_array()
        .and_then(|all| all.iter().find(|it| it["program"].as_str().is_some_and(|it| it.ends_with(name))))
        .unwrap_or_else(|| panic!("no {name} in {said}"))
}

#[test]
fn an_allocator_in_charge_of_the_whole_tree() {
    for library in [jemalloc(), ebbmalloc()] {
        // So long that a look falls into it on a busy machine too.
        let code = "import subprocess as s; s.run(['sleep', '3']); exit(6)";
        let (said, code) = verify(library.to_str().unwrap(), &["python3", "-c", code]);
        assert_eq!(said["in_charge"], true, "{said}");
        assert_eq!(said["library"], library.display().to_string());
        assert_eq!(process(&said, "/sleep")["in_charge"], true);
        assert_eq!(code, Some(6));
    }
}

#[test]
fn the_systems_own_allocator() {
    let (said, _) = verify("glibc", &["sleep", "0.2"]);
    assert_eq!(said["in_charge"], true, "{said}");
    assert_eq!(said["library"], Value::Null);
}

#[test]
fn a_child_that_lost_its_environment() {
    let (said, code) = verify("jemalloc", &["sh", "-c", "env -i /bin/sleep 0.3; exit 4"]);
    assert_eq!(said["in_charge"], false, "{said}");
    let sleep = process(&said, "/sleep");
    assert_eq!(sleep["in_charge"], false);
    assert!(sleep["malloc"].as_str().unwrap().contains("libc"), "{sleep}");
    assert_eq!(code, Some(4));
}

#[test]
fn a_static_child() {
    needs!("musl-tools");
    let folder = folder();
    let program = compile(&folder, "musl-gcc", "fixed", ALLOCATING, &["-static"]);
    let wrapped = format!("{} 300; exit 0", program.display());
    let (said, _) = verify("jemalloc", &["sh", "-c", &wrapped]);
    assert_eq!(said["in_charge"], false, "{said}");
    assert!(process(&said, "/fixed")["why"].as_str().unwrap().contains("statically"));
}

/// Mapped is not in charge: the program's own malloc comes before every library.
#[test]
fn a_program_that_brings_its_own_malloc() {
    let folder = folder();
    let source = r#"
        #include <stddef.h>
        #include <unistd.h>
        static char memory[1 << 20]; static size_t used;
        void *malloc(size_t n) { void *p = memory + used; used += (n + 15) & ~15ul; return p; }
        void free(void *p) {}
        int main(void) { usleep(300000); return malloc(1) == NULL; }
    "#;
    let program = compile(&folder, "cc", "selfish", source, &["-rdynamic"]);
    let (said, _) = verify("jemalloc", &[program.to_str().unwrap()]);
    let selfish = process(&said, "/selfish");
    assert_eq!(selfish["in_charge"], false, "{said}");
    assert!(selfish["malloc"].as_str().unwrap().ends_with("/selfish"), "{said}");
}

/// Mapped is not in charge: another allocator stands before ours.
#[test]
fn a_wrapper_that_preloads_another_allocator_first() {
    needs!("libmimalloc2.0");
    let mimalloc = peer("libmimalloc.so.2", "libmimalloc2.0");
    let preload = format!("LD_PRELOAD={}:{}", mimalloc.display(), jemalloc().display());
    let (said, _) = verify("jemalloc", &["env", &preload, "sleep", "0.3"]);
    let sleep = process(&said, "/sleep");
    assert_eq!(sleep["in_charge"], false, "{said}");
    assert!(sleep["malloc"].as_str().unwrap().contains("mimalloc"), "{said}");
}

#[test]
fn a_musl_program() {
    needs!("musl-tools");
    let folder = folder();
    let program = compile(&folder, "musl-gcc", "program", ALLOCATING, &[]);
    let program = program.to_str().unwrap();
    let (said, code) = verify(ebbmalloc().to_str().unwrap(), &[program, "300"]);
    assert_eq!(said["in_charge"], true, "{said}");
    assert_eq!(code, Some(5));
    let (said, _) = verify("glibc", &[program, "300"]);
    assert_eq!(said["in_charge"], true, "its own libc: {said}");
}

/// A process that closed itself, as one that changed its user has, is never counted as a yes.
#[test]
fn a_process_that_is_closed_to_us() {
    let folder = folder();
    let source = r#"
        #include <sys/prctl.h>
        #include <unistd.h>
        int main(void) { prctl(PR_SET_DUMPABLE, 0); usleep(300000); return 2; }
    "#;
    let program = compile(&folder, "cc", "closed", source, &[]);
    let wrapped = format!("{}; exit 8", program.display());
    let mut ebb = unprivileged_ebb(&folder);
    ebb.args(["run", "-a", "jemalloc", "--verify", "--json", "sh", "-c"]).arg(wrapped);
    let (said, code) = said(&mut ebb);
    let closed = process(&said, "closed]");
    assert_eq!(closed["in_charge"], Value::Null, "{said}");
    assert!(closed["why"].as_str().unwrap().contains("no right"), "{said}");
    assert_eq!(said["in_charge"], Value::Null, "{said}");
    assert_eq!(code, Some(8));
}

#[test]
fn the_text_is_one_line_where_all_is_well() {
    let output = run(&["-a", "jemalloc", "--verify", "sh", "-c", "echo out; sleep 0.2"]);
    let text = stderr(&output);
    assert!(text.starts_with("ebb: jemalloc (/"), "{text}");
    assert!(text.contains("is in charge of"), "{text}");
    assert_eq!(stdout(&output), "out");
}

#[test]
fn a_program_that_ends_at_once_keeps_its_status() {
    for status in [0, 1, 255] {
        let command = format!("exit {status}");
        let output = run(&["-a", "jemalloc", "--verify", "sh", "-c", &command]);
        assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
    }
    let killed = run(&["-a", "jemalloc", "--verify", "sh", "-c", "kill -SEGV $$"]);
    assert_eq!(killed.status.signal(), Some(11));
    let missing = run(&["-a", "jemalloc", "--verify", "no-such-command"]);
    assert_refused(&missing, 127, &["no-such-command"]);
}

/// As the entry point of a container: no signal ends the first process of a namespace.
#[test]
fn as_the_first_process_it_reports_the_signal() {
    let inner = "mount -t proc proc /proc || exit 99; exec \"$EBB\" run -a jemalloc --verify sh -c 'kill -TERM $$'";
    let mut shell = Command::new("unshare");
    shell.args(["-r", "-m", "-p", "-f", "sh", "-c", inner]).env("EBB", env!("CARGO_BIN_EXE_ebb"));
    let output = shell.output().expect("unshare runs");
    if output.status.code() == Some(99) || stderr(&output).contains("unshare") {
        skip!("no namespaces: {}", stderr(&output));
    }
    assert_eq!(output.status.code(), Some(128 + 15), "{}", stderr(&output));
}

/// Starts a shell under `--verify`, waits until it says that it is ready, sends `signal` to ebb.
fn signalled(command: &str, signal: Signal, before: &str) -> std::process::ExitStatus {
    let shell = format!(
        "{before} exec {} run -a jemalloc --verify --verify-for 0.1 -- sh -c '{command}'",
        env!("CARGO_BIN_EXE_ebb")
    );
    let mut subject = Subject::start(Command::new("sh").args(["-c", &shell]));
    subject.signal(signal);
    subject.child.wait().expect("its end")
}

#[test]
fn signals_are_passed_on() {
    let wait = "echo ready; while :; do sleep 0.02; done";
    let caught = format!("trap \"exit 9\" USR1; {wait}");
    assert_eq!(signalled(&caught, Signal::SIGUSR1, "").code(), Some(9));
    assert_eq!(signalled(wait, Signal::SIGTERM, "").signal(), Some(15));
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let command = "echo ready; sleep 0.5; exit 3";
    let status = signalled(command, Signal::SIGHUP, "trap \"\" HUP;");
    assert_eq!(status.code(), Some(3));
}

const MIB: u64 = 1 << 20;

fn tree_of(python: &Subject) -> Tree {
    Tree::of(python.id as i32).expect("the tree")
}

#[test]
fn the_whole_tree_is_counted_and_shared_pages_once_in_pss() {
    // 64 MiB in the parent, shared by a child and a grandchild, which write to half of it each.
    let python = Subject::python(
        "
import os, sys
block = bytearray(64 << 20)
for i in range(0, len(block), 4096): block[i] = 1
r, w = os.pipe()
if os.fork() == 0:
    leaf = os.fork() == 0
    if leaf:
        for i in range(0, len(block) // 2, 4096): block[i] = 2
        os.write(w, b'x')
    os.read(0, 1)
    os._exit(0)
os.read(r, 1)
print('ready', flush=True)
os.read(0, 1)
",
    );
    let tree = tree_of(&python);
    assert_eq!(tree.pids().len(), 3);
    assert_eq!(tree.pids()[0], python.id as i32);
    let sample = tree.sample();
    assert_eq!(sample.processes, 3);
    let rss = sample.rss.expect("rss");
    let pss = sample.pss.expect("pss");
    let anon = sample.anon.expect("anon");
    assert!(rss >= 3 * 64 * MIB, "{rss}");
    assert!((96 * MIB..96 * MIB + 60 * MIB).contains(&pss), "{pss}");
    assert!(anon >= 3 * 64 * MIB && anon < rss, "{anon} of {rss}");
}

#[test]
fn memory_is_told_apart_by_process_and_program() {
    let mut python = Subject::python(
        "
import os
if os.fork() == 0:
    os.read(0, 1)
    os._exit(0)
print('ready', flush=True)
os.wait()
again = \"import os; print('ready', flush=True); os.read(0, 1)\"
os.execvp('python3', ['python3', '-c', again])
",
    );
    let tree = tree_of(&python);
    let sample = tree.sample();
    let [parent, child] = sample.held[..] else {
        panic!("two processes: {:?}", sample.held);
    };
    assert_eq!([parent.pid, child.pid], tree.pids());
    assert_ne!(parent.stack, 0, "we may know it of our own child");
    assert!(child.started_ticks >= parent.started_ticks, "{sample:?}");
    let together = Option::zip(parent.anon, child.anon).map(|(one, other)| one + other);
    assert_eq!(together, sample.anon);
    python.tell();
    assert_eq!(python.line(), "ready");
    let again = tree_of(&python).sample().held[0];
    assert_eq!((again.pid, again.started_ticks), (parent.pid, parent.started_ticks));
    assert_ne!(again.stack, parent.stack, "a program's own stack");
}

#[test]
fn the_time_of_a_child_that_ended_still_counts() {
    let python = Subject::python(
        "
import os, time
pid = os.fork()
if pid == 0:
    while time.process_time() < 0.5: pass
    os._exit(0)
os.waitpid(pid, 0)
print('ready', flush=True)
os.read(0, 1)
",
    );
    let sample = tree_of(&python).sample();
    assert_eq!(sample.processes, 1);
    let cpu = sample.cpu_user.expect("user") + sample.cpu_sys.expect("system");
    assert!((0.45..5.0).contains(&cpu), "{cpu}");
}

#[test]
fn processes_that_come_and_go_do_no_harm() {
    let mut python = Subject::python(
        "
import subprocess, sys, threading
print('ready', flush=True)
def churn():
    for _ in range(150): subprocess.run(['true'])
threads = [threading.Thread(target=churn) for _ in range(2)]
for t in threads: t.start()
for t in threads: t.join()
",
    );
    let begin = Instant::now();
    let mut samples = 0;
    while python.child.try_wait().expect("its state").is_none() {
        // The program may be ending or a zombie by now: then there is no process and no memory to tell
        // of, and no failure. A process that is counted has its memory told.
        let sample = tree_of(&python).sample();
        assert!(sample.rss.is_some() || sample.processes == 0, "{sample:?}");
        samples += 1;
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
    assert!(samples > 5, "{samples}");
    let gone = Tree::of(python.id as i32).expect_err("it is reaped");
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_tree_shrinks_when_a_child_ends() {
    let mut python = Subject::python(
        "
import subprocess, os
child = subprocess.Popen(['sleep', '60'])
print('ready', flush=True)
os.read(0, 1)
child.kill(); child.wait()
print('ready', flush=True)
os.read(0, 1)
",
    );
    assert_eq!(tree_of(&python).pids().len(), 2);
    python.tell();
    assert_eq!(python.line(), "ready");
    assert_eq!(tree_of(&python).pids().len(), 1);
}
