//! A CPython whose objects are its own mimalloc's: `EBB_TEST_PYTHON_FREE_THREADED` names a build without a global lock, as
//! `ci/free-threaded.sh` sets it.

use std::process::Command;

use crate::harness::subjects::Subject;
use crate::harness::{self, output, stderr};

const RETENTION: i32 = 10;
/// 400 000 objects in blocks of 160 bytes, every second one freed; the bound leaves room below.
const PROGRAM: &str = "import os\n\
    kept = [bytes(110) + str(i).encode() for i in range(400000)]\n\
    del kept[::2]\n\
    print('ready', flush=True); os.read(0, 1)";
const HALF_BYTES: u64 = 200_000 * 144;

#[test]
#[ignore = "takes a free-threaded CPython: ci/free-threaded.sh"]
fn what_a_free_threaded_cpython_has_freed_is_held_and_not_live() {
    let python = std::env::var("EBB_TEST_PYTHON_FREE_THREADED")
        .expect("EBB_TEST_PYTHON_FREE_THREADED: a free-threaded CPython");
    let subject = Subject::start(Command::new(python).args(["-c", PROGRAM]));
    let why = output(harness::ebb().args(["why", "--json", &subject.pid()]));
    assert_eq!(why.status.code(), Some(RETENTION), "{}", stderr(&why));
    let value: serde_json::Value = serde_json::from_slice(&why.stdout).unwrap();
    let snapshot = &value[0]["snapshot"];
    assert_eq!(snapshot["missing"], serde_json::json!([]));
    let process = &snapshot["processes"][0];
    assert_eq!(process["runtime"], "cpython");
    let heap = &process["heap"];
    let reader = heap["reader"].as_str().unwrap();
    assert!(reader.contains("of CPython"), "{reader}");
    for line in ["live", "pinned"] {
        let bytes = heap[line].as_u64().unwrap();
        assert!((HALF_BYTES..2 * HALF_BYTES).contains(&bytes), "{line}: {heap}");
    }
}
