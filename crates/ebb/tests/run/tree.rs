//! The reading of a real process tree.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ebb_process::Tree;

const MIB: u64 = 1 << 20;

/// A python program that says a line when it is ready and goes on when it is told a line.
struct Python {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Python {
    fn start(code: &str) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", code])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("python3: {error}: apt-get install python3"));
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, input, output }
    }

    fn wait_for_line(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
    }

    fn go_on(&mut self) {
        self.input.write_all(b"\n").expect("its input");
    }

    fn tree(&self) -> Tree {
        Tree::of(self.child.id() as i32).expect("the tree")
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_whole_tree_is_counted_and_shared_pages_once_in_pss() {
    // 64 MiB in the parent, shared by a child and a grandchild, which write to half of it each.
    let mut python = Python::start(
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
    python.wait_for_line();
    let tree = python.tree();
    assert_eq!(tree.pids().len(), 3);
    assert_eq!(tree.pids()[0], python.child.id() as i32);
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
    let mut python = Python::start(
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
    python.wait_for_line();
    let tree = python.tree();
    let sample = tree.sample();
    let [parent, child] = sample.held[..] else {
        panic!("two processes: {:?}", sample.held);
    };
    assert_eq!([parent.pid, child.pid], tree.pids());
    assert_ne!(parent.stack, 0, "we may know it of our own child");
    assert!(child.started_ticks >= parent.started_ticks, "{sample:?}");
    let together = Option::zip(parent.anon, child.anon).map(|(one, other)| one + other);
    assert_eq!(together, sample.anon);
    python.go_on();
    python.wait_for_line();
    let again = python.tree().sample().held[0];
    assert_eq!((again.pid, again.started_ticks), (parent.pid, parent.started_ticks));
    assert_ne!(again.stack, parent.stack, "a program's own stack");
}

#[test]
fn the_time_of_a_child_that_ended_still_counts() {
    let mut python = Python::start(
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
    python.wait_for_line();
    let sample = python.tree().sample();
    assert_eq!(sample.processes, 1);
    let cpu = sample.cpu_user.expect("user") + sample.cpu_sys.expect("system");
    assert!((0.45..5.0).contains(&cpu), "{cpu}");
}

#[test]
fn processes_that_come_and_go_do_no_harm() {
    let mut python = Python::start(
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
    python.wait_for_line();
    let begin = Instant::now();
    let mut samples = 0;
    while python.child.try_wait().expect("its state").is_none() {
        // The program may be ending or a zombie by now: then there is no process and no memory to tell
        // of, and no failure. A process that is counted has its memory told.
        let sample = python.tree().sample();
        assert!(sample.rss.is_some() || sample.processes == 0, "{sample:?}");
        samples += 1;
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
    assert!(samples > 5, "{samples}");
    let gone = Tree::of(python.child.id() as i32).expect_err("it is reaped");
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
    python.input.flush().expect("nothing to write");
}

#[test]
fn a_tree_shrinks_when_a_child_ends() {
    let mut python = Python::start(
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
    python.wait_for_line();
    assert_eq!(python.tree().pids().len(), 2);
    python.go_on();
    python.wait_for_line();
    assert_eq!(python.tree().pids().len(), 1);
}
