//! CPython: threads, multiprocessing by fork and by spawn, and a part of its own test suite, with
//! its own small-object allocator and with PYTHONMALLOC=malloc, which sends everything to malloc.

use std::path::PathBuf;

use crate::harness::{Run, Scratch, long, require};
use test_needs::needs;

fn python() -> PathBuf {
    require("python3", "python3")
}

fn both_ways(script: &str, starts_at_least: usize) {
    let scratch = Scratch::new();
    let file = scratch.file("script.py", script);
    for python_malloc in ["pymalloc", "malloc"] {
        let outcome = Run::witnessed(python())
            .arg(&file)
            .env("PYTHONMALLOC", python_malloc)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .run()
            .succeeded()
            .in_charge_of("python");
        assert!(outcome.stdout.ends_with("done\n"), "{}", outcome.describe());
        assert!(outcome.starts_of("python") >= starts_at_least, "{}", outcome.describe());
    }
}

#[test]
fn threads() {
    both_ways(
        r#"
import json, threading, zlib, hashlib
def work(n):
    for turn in range(30):
        data = [{"id": i, "text": "x" * (i % 300), "n": [n] * (i % 20)} for i in range(300)]
        packed = zlib.compress(json.dumps(data).encode())
        assert json.loads(zlib.decompress(packed)) == data
        hashlib.sha256(packed).hexdigest()
        buffers = [bytearray(50_000) for _ in range(20)]
        assert not any(any(b) for b in buffers[:2])
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
for _ in range(100):
    t = threading.Thread(target=lambda: bytearray(100_000)); t.start(); t.join()
print("done")
"#,
        1,
    );
}

const MULTIPROCESSING: &str = r#"
import multiprocessing, threading, sys
def work(n):
    data = {i: str(i) * (i % 50) for i in range(20_000)}
    return sum(len(v) for v in data.values()) + n
if __name__ == "__main__":
    ballast = [bytearray(1000) for _ in range(50_000)]
    context = multiprocessing.get_context("METHOD")
    del ballast[::2]
    with context.Pool(4) as pool:
        assert len(set(pool.map(work, range(40)))) == 40
    del ballast
    queue = context.Queue()
    processes = [context.Process(target=queue.put, args=(n,)) for n in range(4)]
    [p.start() for p in processes]
    assert sorted(queue.get() for _ in processes) == [0, 1, 2, 3]
    [p.join() for p in processes]
    assert all(p.exitcode == 0 for p in processes)
    print("done")
"#;

#[test]
fn multiprocessing_by_fork() {
    both_ways(&MULTIPROCESSING.replace("METHOD", "fork"), 1);
}

#[test]
fn multiprocessing_by_spawn() {
    both_ways(&MULTIPROCESSING.replace("METHOD", "spawn"), 9);
}

/// A fork while sibling threads allocate, over and over.
#[test]
fn forks_among_threads() {
    both_ways(
        r#"
import os, threading
stop = False
def churn():
    while not stop:
        [bytearray(n * 37) for n in range(500)]
threads = [threading.Thread(target=churn) for _ in range(3)]
[t.start() for t in threads]
for turn in range(100):
    pid = os.fork()
    if pid == 0:
        data = [bytes(n) for n in range(2000)]
        os._exit(0 if sum(map(len, data)) == 1999000 else 1)
    assert os.waitpid(pid, 0)[1] == 0
stop = True
[t.join() for t in threads]
print("done")
"#,
        1,
    );
}

/// Parts of CPython's own suite that allocate much or are near to allocation, threads and forks.
#[test]
fn its_own_tests() {
    needs!("libpython3.11-testsuite");
    const SHORT: &str = "test_dict test_list test_json test_bytes test_array test_bz2 test_ctypes test_mmap test_zlib \
        test_thread";
    const LONG: &str = "test_threading test_gc test_subprocess test_sqlite3 test_pickle test_unicode test_faulthandler";
    let python = [python(), PathBuf::from("/usr/bin/python3")]
        .into_iter()
        .find(|python| {
            Run::bare(python)
                .args(["-c", "import test.test_dict"])
                .run()
                .status
                .is_some_and(|status| status.success())
        })
        .expect("CPython's test suite is not installed: apt-get install libpython3.11-testsuite");
    let scratch = Scratch::new();
    let tests = if long() { format!("{SHORT} {LONG}") } else { SHORT.to_owned() };
    for python_malloc in ["pymalloc", "malloc"] {
        Run::witnessed(&python)
            .args(["-m", "test", "-q", "-W", "--tempdir"])
            .arg(scratch.path())
            // Who starts the tests in the background may have them ignore SIGINT; some want it.
            .through(["env", "--default-signal=INT"])
            // Asks that nothing has imported threading before; a path file of the installation may.
            .args(["-i", "test_import_from_another_thread"])
            .args(tests.split(' '))
            .env("PYTHONMALLOC", python_malloc)
            .run()
            .succeeded()
            .in_charge_of("python");
    }
}
