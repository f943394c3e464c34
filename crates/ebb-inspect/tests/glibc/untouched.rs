//! Reading leaves a process as it is, whatever happens to it meanwhile.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use ebb_inspect::Memory;
use ebb_inspect::memory::Presence;
use ebb_inspect::target::Backing;
use ebb_inspect::{Heap, Target, Unreadable, glibc::Unsupported};

use crate::harness::{Program, own};

/// Present bytes of each mapping, and the bytes of page tables.
fn state(target: &Target) -> (BTreeMap<u64, u64>, Option<u64>) {
    let mappings = target.mappings().unwrap();
    let present = mappings
        .iter()
        .filter(|mapping| mapping.readable && mapping.backing != Backing::Other)
        .map(|mapping| {
            let presence = Presence::read(target.memory(), mapping.start, mapping.end).unwrap();
            (mapping.start, presence.bytes(mapping.start, mapping.end))
        });
    let tables = target.process().status().unwrap().vmpte;
    (present.collect(), tables)
}

#[test]
fn no_page_and_no_page_table_is_added() {
    for case in ["returned", "untouched", "threads_gone", "wide"] {
        let program = Program::start(&own(), case);
        let target = Target::open(program.pid()).unwrap();
        let before = state(&target);
        assert!(before.1.is_some());
        Heap::read(&target).unwrap();
        assert_eq!(state(&target), before, "{case}");
    }
}

/// A process that is stopped is read all the same: nothing runs in it.
#[test]
fn a_process_is_read_without_its_help() {
    use nix::sys::signal::{Signal, kill};
    let mut program = Program::start(&own(), "kept_end");
    let pid = nix::unistd::Pid::from_raw(program.pid());
    kill(pid, Signal::SIGSTOP).unwrap();
    let heap = program.read();
    kill(pid, Signal::SIGCONT).unwrap();
    assert_eq!(heap.ledger.mallinfo_free(), program.info().free);
}

#[test]
fn a_process_that_ended_is_said_to_have() {
    let mut program = Program::start(&own(), "fresh");
    let target = Target::open(program.pid()).unwrap();
    program.kill();
    let error = Heap::read(&target).unwrap_err();
    assert_eq!(error, Unsupported::Unreadable(Unreadable::Gone));
    let error = Target::open(program.pid()).unwrap_err();
    assert_eq!(error, Unreadable::Gone);
}

/// What was opened is the old program's memory, which is gone.
#[test]
fn a_process_that_started_another_program_is_said_to_have_ended() {
    let mut shell = Command::new("sh")
        .args(["-c", "read line; exec sleep 60"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = i32::try_from(shell.id()).unwrap();
    let name = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    while name() != "sh\n" {
        std::thread::sleep(Duration::from_millis(1));
    }
    let target = Target::open(pid).unwrap();
    shell.stdin.take().unwrap().write_all(b"\n").unwrap();
    while name() != "sleep\n" {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut page = [0; 8];
    let start = target.mappings().unwrap()[0].start;
    let error = target.memory().copy(&[(start, 8)], &mut page).unwrap_err();
    shell.kill().unwrap();
    shell.wait().unwrap();
    assert_eq!(error, Unreadable::Gone);
}

#[test]
fn a_zombie_has_ended() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let is_zombie = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.contains(") Z ")
    };
    while !is_zombie() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = match Target::open(pid).map_err(Unsupported::from) {
        Ok(target) => Heap::read(&target).unwrap_err(),
        Err(error) => error,
    };
    child.wait().unwrap();
    assert_eq!(error, Unsupported::Unreadable(Unreadable::Gone));
}

/// Whenever it ends, the answer is the heap or that it ended.
#[test]
fn a_process_may_end_while_it_is_read() {
    for round in 0..20 {
        let mut program = Program::start(&own(), "threads_4");
        let target = Target::open(program.pid()).unwrap();
        let reader = std::thread::spawn(move || {
            loop {
                match Heap::read(&target) {
                    Ok(heap) => assert!(heap.ledger.adds_up()),
                    Err(error) => return error,
                }
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(round * 3));
        program.kill();
        let error = reader.join().unwrap();
        assert_eq!(error, Unsupported::Unreadable(Unreadable::Gone));
    }
}
