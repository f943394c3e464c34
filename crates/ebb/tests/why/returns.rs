//! What `ebb why` says that malloc_trim would return from ebbmalloc's heap, against what it returns then: at any moment,
//! also right after the last free.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::{Subject, each, subjects, why_json};

const MB: u64 = 1_000_000;
/// Whatever the heap's size: the allocator's own pages, buffers of the C library.
const LEEWAY_BYTES: u64 = 600_000;
/// How long after the last free: at once, and when the purger has looked once.
const MOMENTS: [Duration; 2] = [Duration::ZERO, Duration::from_secs(1)];

/// Bytes of memory of its own.
fn anonymous(process: &Subject) -> u64 {
    let path = format!("/proc/{}/smaps_rollup", process.id);
    let text = std::fs::read_to_string(path).expect("smaps_rollup");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    1024 * kilobytes.expect("a size").trim().parse::<u64>().expect("a number")
}

/// What was foretold, the whole heap as read, and what malloc_trim returned.
fn foretold_and_returned(case: &str, moment: Duration) -> (serde_json::Value, u64) {
    let stop = tempfile::NamedTempFile::new().expect("a file");
    stop.as_file().set_len(4096).expect("its length");
    let mut command = subjects::command(&format!("returns:{case}"));
    command.arg(stop.path()).env("LD_PRELOAD", subjects::preload("ebbmalloc"));
    let mut process = Subject::start(&mut command);
    std::thread::sleep(moment);
    // As it is right now, whatever the pace of this machine: the purger does not run on meanwhile.
    process.signal(Signal::SIGSTOP);
    let (_, said) = why_json(&process.pid());
    let heap = said["snapshot"]["processes"][0]["heap"].clone();
    let before = anonymous(&process);
    // Of what works each thread completes one operation, however long the machine takes for it.
    stop.as_file().write_all_at(&[1], 0).expect("to write");
    process.signal(Signal::SIGCONT);
    process.tell();
    assert_eq!(process.line(), "trimmed", "{case}");
    (heap, before.saturating_sub(anonymous(&process)))
}

/// Each case, and how many MB return at once in it, at least and at most.
#[test]
fn as_much_is_said_to_return_as_returns() {
    let cases = [
        // Free bytes next to live ones.
        ("pinned", 0..=2),
        // A part of the pages is free.
        ("few-live", 5..=20),
        ("kilobytes", 50..=90),
        ("slots-over-pages", 5..=70),
        // Right after the last free of a burst.
        ("all-freed", 90..=110),
        ("nothing-freed", 0..=1),
        ("large", 40..=50),
        // A process at work.
        ("busy", 20..=200),
    ];
    let named = cases.each_ref().map(|(case, returns)| (*case, (*case, returns.clone())));
    each(&named, |(case, returns)| {
        for moment in MOMENTS {
            let (heap, returned) = foretold_and_returned(case, moment);
            // What the purger returned before is not there to be foretold.
            let least = if moment.is_zero() { returns.start() * MB } else { 0 };
            assert!(
                (least..=returns.end() * MB).contains(&returned),
                "{case}: returned {returned}, and the case is to be about {returns:?} MB"
            );
            let foretold = heap["trimmable"].as_u64().expect("a figure");
            let leeway = LEEWAY_BYTES.max(returned / 50);
            assert!(
                foretold.abs_diff(returned) <= leeway,
                "{case} after {moment:?}: {foretold} B foretold, {returned} B returned: {heap:#}"
            );
        }
    });
}
