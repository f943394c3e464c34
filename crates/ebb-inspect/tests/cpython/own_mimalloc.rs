//! CPython's own mimalloc, against what the interpreter says of it: `EBB_TEST_PYTHONS_FREE_THREADED` names builds without a
//! global lock, as `ci/free-threaded.sh` sets it. No release of Debian has one.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use ebb_inspect::cpython::{self, Python};
use ebb_inspect::{Target, Unsupported, mimalloc};

/// Buffers of another thread's, half of them replaced by the main thread with the smallest size; then the blocks in use
/// of all heaps; then it replaces a quarter more: as many blocks, and those it frees stay in lists of what other
/// threads freed.
const PROGRAM: &str = r#"
import os, sys, threading
burst = []
filled, stay = threading.Event(), threading.Event()
def run():
    burst.extend(bytearray(100) for i in range(200000))
    filled.set()
    stay.wait()
thread = threading.Thread(target=run)
thread.start()
filled.wait()
for each in burst[::2]: each.clear()
blocks = sys.getallocatedblocks()
for i in range(1, 200000, 4): burst[i].clear()
print(blocks, flush=True)
os.read(0, 1)
stay.set()
"#;

#[test]
#[ignore = "takes a free-threaded CPython: ci/free-threaded.sh"]
fn free_threaded_builds() {
    let pythons = std::env::var("EBB_TEST_PYTHONS_FREE_THREADED")
        .expect("EBB_TEST_PYTHONS_FREE_THREADED: free-threaded CPythons");
    for python in pythons.split(':') {
        read(Command::new(python).args(["-c", PROGRAM]), true);
    }
    for python in super::pythons() {
        let has_mimalloc = super::read_while_it_waits(
            Command::new(&python).args(["-c", "import os; print(flush=True); os.read(0, 1)"]),
        )
        .version
            >= (3, 13);
        if has_mimalloc {
            let mut command = Command::new(&python);
            command.args(["-c", PROGRAM]).env("PYTHONMALLOC", "mimalloc");
            read(&mut command, false);
        }
    }
}

fn read(command: &mut Command, is_free_threaded: bool) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let target = Target::open(child.id() as i32).unwrap();
    let file = cpython::file(&target).unwrap().expect("the runtime's file");
    let heap = mimalloc::read(&target, &file);
    let python = Python::read(&target, &[]);
    drop(child.stdin.take());
    child.wait().unwrap();
    let heap = heap.unwrap();
    assert!(heap.reader.contains("CPython"), "{}", heap.reader);
    assert_eq!(heap.torn, 0);
    assert!(heap.breakdown.adds_up());
    let said = line.trim().parse::<u64>().unwrap();
    let found = heap.breakdown.live.chunks;
    // 200 000 objects, a buffer of each, and the interpreter's own; the other build counts those of one thread.
    assert!((400_000..440_000).contains(&found), "{found} blocks read");
    assert!(!is_free_threaded || found.abs_diff(said) < 1000, "{found} blocks read, {said} said");
    // Freed blocks lie next to live ones.
    assert!(heap.breakdown.free.bytes > 150_000 * 100, "{:?}", heap.breakdown);
    match python {
        Err(Unsupported::Build(why)) if is_free_threaded => {
            assert!(why.contains("free-threaded"), "{why}");
        }
        python => assert_eq!(python.unwrap().arenas, None),
    }
}
