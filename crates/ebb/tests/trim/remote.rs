//! CPython's own remote execution, on a real 3.14: what `EBB_TEST_PYTHON_314` starts, as `ci/pythons.sh` sets it.
//! Each test is ignored without it, because no release of Debian that the project is built on has one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{self, output, stderr, stdout};

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

struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    out: BufReader<std::process::ChildStdout>,
}

impl Program {
    fn start(options: &[&str], arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let python =
            std::env::var("EBB_TEST_PYTHON_314").expect("EBB_TEST_PYTHON_314: a CPython 3.14");
        let mut child = Command::new(python)
            .args(options)
            .args(["-c", PROGRAM])
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a program");
        let stdin = child.stdin.take();
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let mut program = Self { child, stdin, out };
        assert_eq!(program.line(), "ready");
        program
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    /// How many signals its handler has seen.
    fn signals(&mut self) -> u64 {
        let stdin = self.stdin.as_mut().expect("its input");
        stdin.write_all(b"\n").expect("its input");
        self.line().parse().expect("a number")
    }

    /// Ends it; what it wrote to its stderr.
    fn end(mut self) -> String {
        drop(self.stdin.take());
        let mut text = String::new();
        let mut errors = self.child.stderr.take().expect("its stderr");
        std::io::Read::read_to_string(&mut errors, &mut text).expect("text");
        assert!(self.child.wait().expect("its end").success(), "{text}");
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn trim(program: &Program, options: &[&str]) -> (Option<i32>, serde_json::Value) {
    let mut command = harness::ebb();
    command.args(["trim", &program.pid(), "--json", "--max-pause", "60s"]);
    let result = output(command.args(options));
    let value: serde_json::Value = serde_json::from_slice(&result.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&result)));
    (result.status.code(), value["processes"][0].clone())
}

fn bytes(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no figure: {value}"))
}

#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn a_burst_goes_back_without_a_thread_being_stopped() {
    let program = Program::start(&[], &[], &[]);
    let (code, looked) = trim(&program, &["--dry-run"]);
    assert_eq!((code, &looked["reason"]), (Some(NOT_CALLED), &"not-asked".into()), "{looked}");
    let (code, done) = trim(&program, &["--wait", "60s"]);
    assert_eq!((code, &done["route"]), (Some(0), &"remote-exec".into()), "{done}");
    assert_eq!(done["thread"].to_string(), program.pid());
    assert!(done["stopped_s"].is_null() && bytes(&done["waited_s"]) > 0.0, "{done}");
    let foreseen = bytes(&done["predicted"]["returns"]);
    let measured = &done["measured"];
    let heap = bytes(&measured["heap_before"]) - bytes(&measured["heap_after"]);
    // The script's own modules take some of what they find free.
    assert!(foreseen > 100e6 && heap > 0.95 * foreseen, "{done}");
    let (code, again) = trim(&program, &[]);
    assert_eq!((code, &again["reason"]), (Some(0), &"below-threshold".into()), "{again}");
    let left = std::fs::read_dir("/tmp").expect("/tmp").flatten();
    let name = format!("ebb-trim-{}-", program.pid());
    let left: Vec<_> =
        left.filter(|it| it.file_name().to_string_lossy().starts_with(&name)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(program.end(), "");
}

#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn the_text_names_the_way() {
    let program = Program::start(&[], &[], &[]);
    let result = output(harness::ebb().args([
        "trim",
        &program.pid(),
        "--wait",
        "60s",
        "--max-pause",
        "60s",
    ]));
    assert_eq!(result.status.code(), Some(0), "{}", stderr(&result));
    for words in
        ["Python's thread", "ran the script after", "no thread was stopped", "MB were returned"]
    {
        assert!(stdout(&result).contains(words), "{words}: {}", stdout(&result));
    }
}

#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn one_that_is_switched_off_is_left_alone() {
    let variable = [("PYTHON_DISABLE_REMOTE_DEBUG", "1")];
    for program in [
        Program::start(&[], &[], &variable),
        Program::start(&["-X", "disable-remote-debug"], &[], &[]),
    ] {
        let (code, left) = trim(&program, &[]);
        assert_eq!((code, &left["reason"]), (Some(NOT_CALLED), &"not-asked".into()), "{left}");
        let why = left["why"].as_str().unwrap_or_default();
        assert!(why.contains("PYTHON_DISABLE_REMOTE_DEBUG"), "{left}");
        // The other way is still there.
        let (code, done) = trim(&program, &["--inject", "--wait", "60s"]);
        assert_eq!((code, &done["route"]), (Some(0), &"inject".into()), "{done}");
    }
}

#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn one_that_does_not_come_by_is_waited_for_and_the_request_is_taken_back() {
    let mut program = Program::start(&[], &["idle"], &[]);
    let started = Instant::now();
    let (code, left) = trim(&program, &["--wait", "1s"]);
    assert_eq!((code, &left["reason"]), (Some(TRY_AGAIN), &"no-place".into()), "{left}");
    assert!(started.elapsed() < Duration::from_secs(120));
    // It wakes up, and finds no request: nothing goes back, and it says nothing.
    assert_eq!(program.signals(), 0);
    let (_, looked) = trim(&program, &["--dry-run"]);
    assert!(bytes(&looked["predicted"]["returns"]) > 100e6, "{looked}");
    assert_eq!(program.end(), "");
}

#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn without_ctypes_it_says_so() {
    let folder = harness::folder();
    let path = folder.path().join("ctypes.py");
    std::fs::write(&path, "raise ImportError('none here')\n").expect("a file");
    let path = folder.path().to_str().expect("a path");
    let program = Program::start(&[], &[], &[("PYTHONPATH", path)]);
    let (code, left) = trim(&program, &["--wait", "60s"]);
    assert_eq!((code, &left["reason"]), (Some(UNSUPPORTED), &"unfit".into()), "{left}");
    assert!(left["why"].as_str().is_some_and(|why| why.contains("none here")), "{left}");
    assert_eq!(program.end(), "");
}

/// Each signal is counted before the next is sent, so none that was lost is made up for by another.
#[test]
#[ignore = "takes CPython 3.14: ci/pythons.sh"]
fn a_busy_one_loses_no_signal() {
    let mut program = Program::start(&[], &["busy"], &[]);
    let mut command = harness::ebb();
    command.args([
        "trim",
        &program.pid(),
        "--min",
        "0",
        "--every",
        "1ms",
        "--wait",
        "60s",
        "--json",
    ]);
    let mut rounds = command.stdout(Stdio::piped()).spawn().expect("ebb");
    let mut out = BufReader::new(rounds.stdout.take().expect("its output")).lines();
    let pid = nix::unistd::Pid::from_raw(program.child.id() as i32);
    let (mut sent, mut trims) = (0, 0);
    while trims < 30 {
        let round: serde_json::Value =
            serde_json::from_str(&out.next().expect("a round").expect("text")).expect("JSON");
        trims += u32::from(round["processes"][0]["route"] == "remote-exec");
        for _ in 0..10 {
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGUSR1).expect("a signal");
            sent += 1;
            let until = Instant::now() + Duration::from_secs(60);
            while program.signals() < sent {
                assert!(Instant::now() < until, "signal {sent} was lost");
            }
        }
    }
    let _ = rounds.kill();
    let _ = rounds.wait();
    assert_eq!(program.signals(), sent);
}
