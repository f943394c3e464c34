//! Busy programs of one and of many threads.

use std::time::Duration;

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
        let called = trim(program.pid(), PATIENCE)
            .unwrap_or_else(|error| panic!("{arguments:?}, call {time}: {error}"));
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
        "nanosleep",
        "clock_nanosleep",
        "poll",
        "ppoll",
        "select",
        "futex",
        "condition",
        "epoll",
        "semaphore",
        "signal",
        "receive",
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
