//! Busy programs of one and of many threads.

use std::time::{Duration, Instant};

use ebb_inject::NotCalled;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::program::{Program, trim};

const PATIENCE: Duration = Duration::from_secs(60);

/// Calls in all.
fn times() -> u32 {
    match std::env::var_os("EBB_LONG") {
        Some(_) => 1000,
        None => 50,
    }
}

/// Rounds that the program made, and what was wrong with how many.
fn rounds(program: &mut Program) -> u64 {
    let answer = program.ask();
    let mut words = answer.splitn(3, ' ');
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    let (rounds, wrong) = (number().expect("a number"), number().expect("a number"));
    assert_eq!(wrong, 0, "of {rounds} rounds: {}", words.next().unwrap_or_default());
    rounds
}

/// Calls again and again; what the program checks is right throughout, and it goes on.
fn survives(arguments: &[&str], times: u32) {
    let mut program = Program::start("waits", arguments);
    assert_eq!(program.first, "ready");
    for time in 0..times {
        let called =
            trim(program.pid(), PATIENCE).unwrap_or_else(|error| panic!("{arguments:?}, call {time}: {error}"));
        assert!(called.ran.is_some(), "{arguments:?}: it did not come back");
    }
    let before = rounds(&mut program);
    std::thread::sleep(Duration::from_millis(100));
    assert!(rounds(&mut program) > before, "{arguments:?}: it stands still");
}

#[test]
fn threads_in_all_kinds_of_waits() {
    survives(&[], times());
}

/// There is no other thread to choose: the one thread is found in the wait, or before or after it.
#[test]
fn the_only_thread_in_each_kind_of_wait() {
    let kinds = [
        "nanosleep", "clock_nanosleep", "poll", "ppoll", "select", "futex", "condition", "epoll", "semaphore",
        "signal", "receive",
    ];
    for kind in kinds {
        survives(&["alone", kind], times() / kinds.len() as u32);
    }
}

/// AVX registers, all others, and the red zone, in a loop over a system call.
#[test]
fn registers_and_the_red_zone_of_the_only_thread() {
    survives(&["alone", "registers"], times());
}

/// With all threads waiting in pairs: readers, writers, accept and connect.
#[test]
fn pipes_and_connections() {
    for kind in ["pipe", "accept"] {
        survives(&[kind], times() / 2);
    }
}

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
