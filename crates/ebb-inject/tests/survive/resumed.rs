//! A thread whose wait a stop of the whole process has ended, and which the kernel resumes (restart_syscall).

use std::time::{Duration, Instant};

use ebb_inject::NotCalled;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::program::{Program, trim};

/// In `poll` for so many milliseconds, stopped and continued.
fn resumed(milliseconds: &str) -> Program {
    let program = Program::start("resumed", &[milliseconds]);
    assert_eq!(program.first, "ready");
    let pid = program.pid();
    let until = |what: &str, is: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(20);
        while !is() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let is_in = |call: i64| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/syscall"));
        text.is_ok_and(|text| text.starts_with(&format!("{call} ")))
    };
    until("it polls", &|| is_in(libc::SYS_poll));
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    until("it stops", &|| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    });
    kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
    until("the kernel resumes it", &|| is_in(libc::SYS_restart_syscall));
    program
}

#[test]
fn a_poll_without_end_is_resumed_is_led_away_and_polls_on() {
    let mut program = resumed("-1");
    let called = trim(program.pid(), Duration::from_secs(20)).expect("it is called");
    assert!(called.is_called_again && called.ran.is_some());
    // Again, since the call is a poll now.
    trim(program.pid(), Duration::from_secs(20)).expect("it is called");
    let answer = program.ask();
    assert!(answer.starts_with("1 "), "{answer}");
}

#[test]
fn a_poll_with_a_limit_that_is_resumed_keeps_its_limit() {
    let program = resumed("2500");
    // It ends later than that, and the reason says so.
    let early = trim(program.pid(), Duration::from_millis(300)).unwrap_err();
    assert!(matches!(early, NotCalled::NoThread(_)), "{early}");
    assert!(early.to_string().contains("was interrupted by a signal"), "{early}");
    let called = trim(program.pid(), Duration::from_secs(20)).expect("it is called");
    assert!(called.ran.is_some());
    let mut program = program;
    let answer = program.next();
    let (result, milliseconds) = answer.split_once(' ').expect("two words");
    assert_eq!(result, "0");
    let milliseconds: u64 = milliseconds.parse().unwrap();
    assert!(milliseconds >= 2500, "{answer}");
}
