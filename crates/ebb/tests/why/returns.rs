//! What `ebb why` says that malloc_trim would return from ebbmalloc's heap, against what it returns then: at any moment,
//! also right after the last free.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::subjects;
use crate::harness::{self, output, stderr};

/// Whatever the heap's size: the allocator's own pages, buffers of the C library.
const LEEWAY_BYTES: u64 = 600_000;

/// A process that waits for the word to trim; killed with this value.
struct Returns(Child);

impl Drop for Returns {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Returns {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }

    /// Bytes of memory of its own.
    fn anonymous(&self) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.0.id());
        let text = std::fs::read_to_string(path).expect("smaps_rollup");
        let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        1024 * kilobytes.expect("a size").trim().parse::<u64>().expect("a number")
    }
}

/// How long after the last free: at once, and when the purger has looked once.
const MOMENTS: [Duration; 2] = [Duration::ZERO, Duration::from_secs(1)];

/// What was foretold, the whole heap as read, and what malloc_trim returned.
fn foretold_and_returned(case: &str, moment: Duration) -> (serde_json::Value, u64) {
    let stop = tempfile::NamedTempFile::new().expect("a file");
    stop.as_file().set_len(4096).expect("its length");
    let mut command = subjects::command(&format!("returns:{case}"));
    command
        .arg(stop.path())
        .env("LD_PRELOAD", subjects::preload("ebbmalloc"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut process = Returns(command.spawn().expect("the program"));
    let mut lines = BufReader::new(process.0.stdout.take().expect("a pipe")).lines();
    let mut expect = |word: &str| {
        let line = lines.next().expect("a line").expect("a line");
        assert_eq!(line, word, "{case}");
    };
    expect("ready");
    std::thread::sleep(moment);
    // As it is right now, whatever the pace of this machine: the purger does not run on meanwhile.
    kill(process.pid(), Signal::SIGSTOP).expect("to stop it");
    let why = output(harness::ebb().args(["why", "--json", &process.pid().to_string()]));
    let said: serde_json::Value =
        serde_json::from_slice(&why.stdout).unwrap_or_else(|_| panic!("{}", stderr(&why)));
    let heap = said[0]["snapshot"]["processes"][0]["heap"].clone();
    let before = process.anonymous();
    // Of what works each thread completes one operation, however long the machine takes for it.
    stop.as_file().write_all_at(&[1], 0).expect("to write");
    kill(process.pid(), Signal::SIGCONT).expect("to wake it");
    let mut input = process.0.stdin.take().expect("a pipe");
    input.write_all(b"\n").expect("to write");
    expect("trimmed");
    (heap, before.saturating_sub(process.anonymous()))
}

/// Of a case in which at most `most` bytes return, and at once `least` or more.
#[track_caller]
fn assert_foretold(case: &str, least: u64, most: u64) {
    for moment in MOMENTS {
        let (heap, returned) = foretold_and_returned(case, moment);
        // What the purger returned before is not there to be foretold.
        let least = if moment.is_zero() { least } else { 0 };
        assert!(
            (least..=most).contains(&returned),
            "{case}: returned {returned}, and the case is to be about {least} to {most}"
        );
        let figure = |name: &str| heap[name].as_u64().expect("a figure");
        let foretold = figure("trimmable");
        let leeway = LEEWAY_BYTES.max(returned / 50);
        assert!(
            foretold.abs_diff(returned) <= leeway,
            "{case} after {moment:?}: {foretold} B foretold, {returned} B returned: {heap:#}"
        );
    }
}

const MB: u64 = 1_000_000;

#[test]
fn free_bytes_beside_live_ones_are_not_said_to_return() {
    assert_foretold("pinned", 0, 2 * MB);
}

#[test]
fn where_a_part_of_the_pages_is_free_that_part_is_said_to_return() {
    assert_foretold("few-live", 5 * MB, 20 * MB);
    assert_foretold("kilobytes", 50 * MB, 90 * MB);
    assert_foretold("slots-over-pages", 5 * MB, 70 * MB);
}

#[test]
fn all_of_a_burst_is_said_to_return_right_after_its_last_free() {
    assert_foretold("all-freed", 90 * MB, 110 * MB);
}

#[test]
fn nothing_is_said_to_return_where_nothing_was_freed() {
    assert_foretold("nothing-freed", 0, MB);
}

#[test]
fn freed_large_blocks_are_said_to_return() {
    assert_foretold("large", 40 * MB, 50 * MB);
}

#[test]
fn it_is_foretold_of_a_busy_process_as_well() {
    assert_foretold("busy", 20 * MB, 200 * MB);
}
