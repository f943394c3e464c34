//! Places where nothing may be called: said so, and nothing changed.

use std::process::Command;
use std::time::Duration;

use ebb_inject::{NotCalled, Unfit};

use crate::program::{Program, trim};
use test_needs::needs;

const SHORT: Duration = Duration::from_millis(300);

/// Nothing is called, for a reason with this word; the program answers as before.
fn is_left_alone(place: &str, word: &str) -> NotCalled {
    let mut program = Program::start("places", &[place]);
    let error = trim(program.pid(), SHORT).expect_err(place);
    assert!(error.to_string().contains(word), "{place}: {error}");
    assert_eq!(program.ask(), "here", "{place}");
    error
}

#[test]
fn a_plain_process_is_called_in() {
    let mut program = Program::start("places", &["plain"]);
    trim(program.pid(), Duration::from_secs(60)).unwrap();
    assert_eq!(program.ask(), "here");
}

#[test]
fn a_thread_in_a_handler_is_left_alone() {
    is_left_alone("handler", "handler");
}

#[test]
fn a_thread_on_another_stack_is_left_alone() {
    is_left_alone("alternate", "own stack");
    is_left_alone("coroutine", "own stack");
}

#[test]
fn a_thread_that_blocks_the_signals_of_libc_is_left_alone() {
    is_left_alone("blocks-all", "only libc blocks");
}

#[test]
fn seccomp_decides() {
    is_left_alone("strict", "strict");
    match nix::unistd::Uid::effective().is_root() {
        true => {
            is_left_alone("filter-kills", "madvise");
            let mut program = Program::start("places", &["filter-allows"]);
            trim(program.pid(), Duration::from_secs(60)).unwrap();
            assert_eq!(program.ask(), "here");
        }
        false => drop(is_left_alone("filter-kills", "root")),
    }
}

/// Of a process whose first thread has ended `/proc` shows nothing under its own number.
#[test]
fn a_process_goes_by_another_thread_when_its_first_has_ended() {
    let mut program = Program::start("places", &["first-ended"]);
    while !status(program.pid()).contains("(zombie)") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let threads = std::fs::read_dir(format!("/proc/{}/task", program.pid())).expect("its threads");
    let threads: Vec<i32> = threads
        .map(|entry| entry.expect("a thread").file_name())
        .map(|name| name.to_str().expect("a number").parse().expect("a number"))
        .collect();
    let [first, other] = threads[..] else {
        panic!("{threads:?}");
    };
    assert_eq!(first, program.pid());
    let called = trim(other, Duration::from_secs(60)).unwrap();
    assert_eq!(called.tid, other);
    assert_eq!(program.ask(), "here");
}

#[test]
fn a_child_that_shares_its_parents_memory_is_left_alone() {
    let mut program = Program::start("places", &["vfork"]);
    let child = program.first.parse().expect("the child's pid");
    let error = trim(child, SHORT).unwrap_err();
    assert_eq!(error, NotCalled::Unfit(Unfit::Shared(program.pid())));
    // The parent waits for its child, in no wait that can be ended.
    trim(program.pid(), SHORT).unwrap_err();
    assert_eq!(program.ask(), "here");
}

#[test]
fn a_stopped_process_and_one_with_a_debugger_are_left_alone() {
    needs!("gdb");
    use nix::sys::signal::{Signal, kill};
    let program = Program::start("places", &["plain"]);
    let pid = nix::unistd::Pid::from_raw(program.pid());
    kill(pid, Signal::SIGSTOP).unwrap();
    while !status(program.pid()).contains("(stopped)") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = trim(program.pid(), SHORT).unwrap_err();
    assert_eq!(error, NotCalled::Unfit(Unfit::Stopped));
    assert!(status(program.pid()).contains("(stopped)"));
    kill(pid, Signal::SIGCONT).unwrap();

    let mut debugger = Command::new("gdb")
        .args(["-q", "-nx", "-p", &program.pid().to_string(), "-ex", "python import time; time.sleep(600)"])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("gdb");
    while status(program.pid()).contains("TracerPid:\t0\n") {
        std::thread::sleep(Duration::from_millis(10));
    }
    let error = trim(program.pid(), SHORT).unwrap_err();
    assert!(matches!(error, NotCalled::Unfit(Unfit::Traced(_))), "{error}");
    debugger.kill().unwrap();
    debugger.wait().unwrap();
}

fn status(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a status")
}
