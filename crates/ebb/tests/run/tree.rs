//! The reading of a real process tree.

use std::time::{Duration, Instant};

use ebb_process::Tree;

use crate::harness::Subject;

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
