//! CPython's small objects under the preload: served by malloc, unless the user chose otherwise. In each CPython that
//! `EBB_TEST_PYTHONS` names, separated by colons (`ci/pythons.sh`), else in this machine's.
//!
//! What is in force shows in `sys.getallocatedblocks()`, which counts the blocks of CPython's own allocator: 0 when
//! malloc serves the objects.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::PathBuf;

use crate::harness::{Outcome, Run, Scratch, require};
use test_needs::needs;

/// A CPython under test.
pub struct Python {
    pub path: PathBuf,
    /// Objects lie in a mimalloc inside CPython, which cannot be replaced.
    pub is_free_threaded: bool,
    /// A script that starts an interpreter with `PYTHONHOME` and another C library: it can do without neither.
    is_script: bool,
}

/// All of them. Duplicates by another name are run twice.
pub fn pythons() -> Vec<Python> {
    let named = env::var("EBB_TEST_PYTHONS").unwrap_or_default();
    let mut paths: Vec<PathBuf> = named.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
    if paths.is_empty() {
        paths.push(require("python3", "python3"));
        // Has the library inside, where the one before may be linked with it.
        paths.extend(Some(PathBuf::from("/usr/bin/python3")).filter(|python| python.is_file()));
    }
    paths.into_iter().map(Python::at).collect()
}

impl Python {
    fn at(path: PathBuf) -> Self {
        let asked = "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)";
        let answer = Run::bare(&path).args(["-c", asked]).run().succeeded();
        Self {
            is_free_threaded: answer.stdout.trim() == "1",
            is_script: fs::read(&path).is_ok_and(|bytes| bytes.starts_with(b"#!")),
            path,
        }
    }

    fn run(&self, arguments: &[&str]) -> Run {
        Run::preloaded(&self.path).args(arguments).env("PYTHONDONTWRITEBYTECODE", "1")
    }

    /// Runs a script under the preload: its last line is "ok".
    #[track_caller]
    fn passes(&self, script: &str) -> Outcome {
        let scratch = Scratch::new();
        let file = scratch.file("script.py", script);
        self.run(&[&file.to_string_lossy()]).run().passed()
    }

    /// How many blocks of CPython's own allocator a run has.
    #[track_caller]
    fn own_blocks(&self, run: Run) -> u64 {
        let outcome = run.args(["-c", "import sys; print(sys.getallocatedblocks())"]).run().succeeded();
        let number = outcome.stdout.trim().parse();
        number.unwrap_or_else(|_| panic!("no number: {}", outcome.describe()))
    }
}

/// Those with the lock, of whose objects malloc can be the allocator.
fn with_the_lock() -> impl Iterator<Item = Python> {
    pythons().into_iter().filter(|python| !python.is_free_threaded)
}

#[test]
fn small_objects_come_from_malloc() {
    for python in with_the_lock() {
        for arguments in [&[][..], &["-I"], &["-E"], &["-s"], &["-X", "utf8"], &["-O"]] {
            if python.is_script && matches!(arguments, ["-I" | "-E"]) {
                continue;
            }
            let blocks = python.own_blocks(python.run(arguments));
            assert_eq!(blocks, 0, "{} {arguments:?}", python.path.display());
        }
    }
}

#[test]
fn objects_begin_with_a_cache_line_and_aligned_blocks_stay_aligned() {
    for python in with_the_lock() {
        python.passes(
            r#"
import ctypes, os, sys
# 16 bytes for the collector and 40 for the list: slots of 64 bytes. Not in a debug build, whose checks lie around them,
# and before glibc 2.32, which does not say that there is one thread.
lists = [[] for _ in range(20_000)]
glibc = os.confstr("CS_GNU_LIBC_VERSION").split(".")[-1]
if not hasattr(sys, "gettotalrefcount") and int(glibc) >= 32:
    assert sum(id(it) % 64 == 0 for it in lists) > 18_000, {id(it) % 64 for it in lists}
libc = ctypes.CDLL(None)
libc.aligned_alloc.restype = ctypes.c_void_p
libc.aligned_alloc.argtypes = [ctypes.c_size_t] * 2
libc.free.argtypes = [ctypes.c_void_p]
for size in range(1, 2000, 7):
    for align in (32, 64, 128, 256, 4096):
        blocks = [libc.aligned_alloc(align, size) for _ in range(3)]
        assert not any(block % align for block in blocks), (size, align, blocks)
        for block in blocks:
            libc.free(block)
print("ok")
"#,
        );
    }
}

#[test]
fn what_the_user_chose_wins() {
    for python in with_the_lock() {
        let path = python.path.display();
        for chosen in ["pymalloc", "pymalloc_debug", "debug", "default"] {
            let blocks = python.own_blocks(python.run(&[]).env("PYTHONMALLOC", chosen));
            assert_ne!(blocks, 0, "{path} PYTHONMALLOC={chosen}");
        }
        for chosen in ["malloc", "malloc_debug"] {
            let blocks = python.own_blocks(python.run(&[]).env("PYTHONMALLOC", chosen));
            assert_eq!(blocks, 0, "{path} PYTHONMALLOC={chosen}");
        }
        let blocks = python.own_blocks(python.run(&["-X", "dev"]));
        assert_ne!(blocks, 0, "{path} -X dev");
        let blocks = python.own_blocks(python.run(&[]).env("PYTHONDEVMODE", "1"));
        assert_ne!(blocks, 0, "{path} PYTHONDEVMODE");
    }
}

#[test]
fn the_setting_python_off_leaves_cpython_its_own_allocator() {
    for python in with_the_lock() {
        let blocks = python.own_blocks(python.run(&[]).env("EBB_CONF", "python:off"));
        assert_ne!(blocks, 0, "{}", python.path.display());
    }
}

#[test]
fn free_threaded_builds_and_pypy_keep_their_own() {
    for python in pythons().iter().filter(|python| python.is_free_threaded) {
        assert_ne!(python.own_blocks(python.run(&[])), 0, "{}", python.path.display());
    }
    needs!("pypy3");
    Run::preloaded(require("pypy3", "pypy3"))
        .args(["-c", "print(sum(len(str(i)) for i in range(100000))); print('ok')"])
        .run()
        .passed();
}

/// The burst of small objects of which few stay: as much as they need stays, and that within seconds.
#[test]
fn memory_of_small_objects_goes_back() {
    const BURST: &str = r#"
import gc, random, time
def resident_mb():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Rss:")) / 1000
resident_mb()
start = resident_mb()
objects = [(str(i), i * 1.5) for i in range(500_000)]
kept = [objects[i] for i in random.Random(1).sample(range(len(objects)), 50)]
peak = resident_mb() - start
del objects
gc.collect()
deadline = time.monotonic() + 60
while resident_mb() - start > 6 and time.monotonic() < deadline:
    time.sleep(0.1)
assert peak > 50, peak
assert resident_mb() - start <= 6, (peak, resident_mb() - start)
print("ok")
"#;
    for python in with_the_lock() {
        python.passes(BURST);
    }
}

#[test]
fn workers_of_multiprocessing_have_it_too() {
    const WORKERS: &str = r#"
import multiprocessing, sys
def blocks(n):
    data = {i: str(i) * (i % 50) for i in range(5000)}
    return sys.getallocatedblocks() + 0 * sum(map(len, data.values()))
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert set(pool.map(blocks, range(8))) == {0}, method
    print("ok")
"#;
    // One that is started by a script starts its workers without it.
    for python in with_the_lock().filter(|python| !python.is_script) {
        python.passes(WORKERS);
    }
}

/// A process without the preload must not inherit what would cost it memory.
#[test]
fn the_environment_is_left_alone() {
    const ENVIRONMENT: &str = r#"
import os, subprocess, sys
print(*sorted(set(os.environ) - {"LD_PRELOAD", "_", "LC_CTYPE"}), sep="\n", file=sys.stderr)
without = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
show = "import os, sys; print(sys.getallocatedblocks(), os.environ.get('PYTHONMALLOC'))"
blocks, variable = subprocess.check_output([sys.argv[1], "-c", show], env=without, text=True).split()
assert int(blocks) > 0 and variable == "None", (blocks, variable)
print("ok")
"#;
    for python in with_the_lock() {
        let scratch = Scratch::new();
        let file = scratch.file("script.py", ENVIRONMENT);
        let names = |run: Run| {
            let outcome = run.arg(&file).arg(&python.path).run().passed();
            outcome.stderr.lines().map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let dont = "PYTHONDONTWRITEBYTECODE";
        let bare = names(Run::bare(&python.path).env(dont, "1"));
        assert_eq!(bare, names(python.run(&[])), "{}", python.path.display());
    }
}

#[test]
fn environments_of_venv_have_it() {
    for python in with_the_lock().filter(|python| !python.is_script) {
        let scratch = Scratch::new();
        let folder = scratch.path().join("venv");
        python.run(&["-m", "venv", "--without-pip"]).arg(&folder).run().succeeded();
        let run = Run::preloaded(folder.join("bin/python"));
        assert_eq!(python.own_blocks(run), 0, "{}", python.path.display());
    }
}

#[test]
fn cpythons_own_means_of_looking_at_memory_work() {
    const LOOK: &str = r#"
import gc, sys, tracemalloc
sys._debugmallocstats()
assert len(gc.get_stats()) == 3
gc.collect()
tracemalloc.start()
data = [str(i) * 10 for i in range(20_000)]
traced, peak = tracemalloc.get_traced_memory()
assert traced > 1_000_000 and peak >= traced, (traced, peak)
counts = [line.count for line in tracemalloc.take_snapshot().statistics("lineno")]
assert max(counts) >= 20_000, counts
del data
assert traced - tracemalloc.get_traced_memory()[0] > 1_000_000
tracemalloc.stop()
print("ok")
"#;
    for python in pythons() {
        let outcome = python.passes(LOOK);
        assert!(!outcome.stderr.is_empty(), "no figures: {}", outcome.describe());
        let scratch = Scratch::new();
        let file = scratch.file("script.py", LOOK);
        // From before the first object on.
        let run = python.run(&["-X", "tracemalloc=5", &file.to_string_lossy()]);
        run.run().passed();
    }
}
