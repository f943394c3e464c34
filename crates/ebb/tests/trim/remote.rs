//! CPython's own remote execution, on a real 3.14: what `EBB_TEST_PYTHON_314` starts, as `ci/pythons.sh` sets it.
//! Each test is ignored without it, because no release of Debian that the project is built on has one.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::{self, Subject, words};
use crate::{assert_fact, bytes, text, trim};

const NOT_CALLED: i32 = 10;
const UNSUPPORTED: i32 = 31;
const TRY_AGAIN: i32 = 75;

/// A burst of blocks below the threshold from which malloc maps them, all but the last freed. Then it counts
/// signals, and answers each line with their number.
const PROGRAM: &str = r#"
import select, signal, sys, time
came = []
signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
burst = [bytearray(60000) for _ in range(2000)]
last = burst.pop()
burst.clear()
print("ready", flush=True)
work = "busy" in sys.argv
while True:
    ready, _, _ = select.select([sys.stdin], [], [], 0 if work else None if "idle" in sys.argv else 0.05)
    if work:
        sum(range(5000))
    if ready:
        if not sys.stdin.readline():
            break
        print(len(came), flush=True)
"#;

fn start(options: &[&str], arguments: &[&str], environment: &[(&str, &str)]) -> Subject {
    let python = std::env::var("EBB_TEST_PYTHON_314").expect("EBB_TEST_PYTHON_314: a CPython 3.14");
    let mut command = Command::new(python);
    command.args(options).args(["-c", PROGRAM]).args(arguments);
    Subject::start(command.envs(environment.iter().copied()).stderr(Stdio::piped()))
}

fn signals(program: &mut Subject) -> u64 {
    program.tell();
    program.line().parse().expect("a number")
}

/// Ends it. It must have written nothing to its stderr.
#[track_caller]
fn assert_ends_without_a_word(mut program: Subject) {
    drop(program.child.stdin.take());
    let mut text = String::new();
    program.child.stderr.take().expect("its stderr").read_to_string(&mut text).expect("text");
    assert!(program.child.wait().expect("its end").success(), "{text}");
    assert_eq!(text, "");
}

const PATIENT: &str = "--max-pause 60s --wait 60s";

#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn a_burst_goes_back_without_a_thread_being_stopped() {
    let program = start(&[], &[], &[]);
    let pid = program.pid();
    assert_fact(&trim(&pid, "--max-pause 60s --dry-run"), NOT_CALLED, "reason", "not-asked");
    let done = trim(&pid, PATIENT);
    assert_fact(&done, 0, "route", "remote-exec");
    let done = done.1;
    assert_eq!(done["thread"].to_string(), pid);
    assert!(done["stopped_s"].is_null() && bytes(&done["waited_s"]) > 0.0, "{done}");
    let foreseen = bytes(&done["predicted"]["returns"]);
    let measured = &done["measured"];
    let heap = bytes(&measured["heap_before"]) - bytes(&measured["heap_after"]);
    // The script's own modules take some of what they find free.
    assert!(foreseen > 100e6 && heap > 0.95 * foreseen, "{done}");
    assert_fact(&trim(&pid, "--max-pause 60s"), 0, "reason", "below-threshold");
    let left = std::fs::read_dir("/tmp").expect("/tmp").flatten();
    let name = format!("ebb-trim-{pid}-");
    let left: Vec<_> = left.filter(|it| it.file_name().to_string_lossy().starts_with(&name)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_ends_without_a_word(program);
}

#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn the_text_names_the_way() {
    let said = ["Python's thread", "ran the script after", "no thread was stopped", "MB were returned"];
    text(&start(&[], &[], &[]).pid(), "--max-pause 60s").expect(0, &said, &[]);
}

#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn one_that_is_switched_off_is_left_alone() {
    let variable = [("PYTHON_DISABLE_REMOTE_DEBUG", "1")];
    for program in [start(&[], &[], &variable), start(&["-X", "disable-remote-debug"], &[], &[])] {
        let left = trim(&program.pid(), "--max-pause 60s");
        assert_fact(&left, NOT_CALLED, "reason", "not-asked");
        let why = left.1["why"].as_str().unwrap_or_default();
        assert!(why.contains("PYTHON_DISABLE_REMOTE_DEBUG"), "{why}");
        // The other way is still there.
        let done = trim(&program.pid(), &format!("{PATIENT} --inject"));
        assert_fact(&done, 0, "route", "inject");
    }
}

#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn one_that_does_not_come_by_is_waited_for_and_the_request_is_taken_back() {
    let mut program = start(&[], &["idle"], &[]);
    let started = Instant::now();
    let left = trim(&program.pid(), "--max-pause 60s --wait 1s");
    assert_fact(&left, TRY_AGAIN, "reason", "no-place");
    assert!(started.elapsed() < Duration::from_secs(120));
    // It wakes up and finds no request: it returns nothing and prints nothing.
    assert_eq!(signals(&mut program), 0);
    let (_, looked) = trim(&program.pid(), "--max-pause 60s --dry-run");
    assert!(bytes(&looked["predicted"]["returns"]) > 100e6, "{looked}");
    assert_ends_without_a_word(program);
}

#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn without_ctypes_it_says_so() {
    let folder = harness::folder();
    std::fs::write(folder.path().join("ctypes.py"), "raise ImportError('none here')\n").expect("a file");
    let path = folder.path().to_str().expect("a path");
    let program = start(&[], &[], &[("PYTHONPATH", path)]);
    let left = trim(&program.pid(), PATIENT);
    assert_fact(&left, UNSUPPORTED, "reason", "unfit");
    assert!(left.1["why"].as_str().is_some_and(|why| why.contains("none here")), "{}", left.1);
    assert_ends_without_a_word(program);
}

/// Each signal is counted before the next is sent, so none that was lost is made up for by another.
#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn a_busy_one_loses_no_signal() {
    let mut program = start(&[], &["busy"], &[]);
    let line = format!("trim {} --min 0 --every 1ms --wait 60s --json", program.pid());
    let mut rounds = harness::ebb().args(words(&line)).stdout(Stdio::piped()).spawn().expect("ebb");
    let mut out = BufReader::new(rounds.stdout.take().expect("its output")).lines();
    let (mut sent, mut trims) = (0, 0);
    while trims < 30 {
        let round: serde_json::Value =
            serde_json::from_str(&out.next().expect("a round").expect("text")).expect("JSON");
        trims += u32::from(round["processes"][0]["route"] == "remote-exec");
        for _ in 0..10 {
            program.signal(Signal::SIGUSR1);
            sent += 1;
            let until = Instant::now() + Duration::from_secs(60);
            while signals(&mut program) < sent {
                assert!(Instant::now() < until, "signal {sent} was lost");
            }
        }
    }
    let _ = rounds.kill();
    let _ = rounds.wait();
    assert_eq!(signals(&mut program), sent);
}
