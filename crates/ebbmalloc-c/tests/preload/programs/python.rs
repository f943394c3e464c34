//! CPython: threads, multiprocessing by fork and by spawn, and a part of its own test suite, with
//! its own small-object allocator and with PYTHONMALLOC=malloc, which sends everything to malloc.

use std::path::PathBuf;

use super::script;
use crate::harness::{Run, Scratch, long, require};
use test_needs::needs;

fn python() -> PathBuf {
    require("python3", "python3")
}

/// A script and its arguments.
fn both_ways(command: &str, starts_at_least: usize) {
    let scratch = Scratch::new();
    let (name, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let file = script(&scratch, name);
    for python_malloc in ["pymalloc", "malloc"] {
        let outcome = Run::witnessed(python())
            .arg(&file)
            .args(arguments.split_whitespace())
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
    both_ways("threads.py", 1);
}

#[test]
fn multiprocessing_by_fork() {
    both_ways("multiprocessing_by.py fork", 1);
}

#[test]
fn multiprocessing_by_spawn() {
    both_ways("multiprocessing_by.py spawn", 9);
}

/// A fork while sibling threads allocate, over and over.
#[test]
fn forks_among_threads() {
    both_ways("forks.py", 1);
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
            Run::bare(python).args(["-c", "import test.test_dict"]).run().status.is_some_and(|status| status.success())
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
