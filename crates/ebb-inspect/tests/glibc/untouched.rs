//! Reading leaves a process as it is, whatever happens to it meanwhile; where its memory is closed to us, the gate is named.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ebb_inspect::memory::{Memory, Page, Presence, by_pages};
use ebb_inspect::target::Backing;
use ebb_inspect::{Gate, LOOK_WITHIN, Target, Unreadable, Unsupported, glibc, permission};

use crate::harness::state;
use crate::program::{Program, as_nobody, copy, own};

#[test]
fn no_page_and_no_page_table_is_added() {
    for case in ["returned", "untouched", "threads_gone", "wide", "vast"] {
        let program = Program::start(&own(), case);
        let target = Target::open(program.pid()).unwrap();
        let before = state(&target);
        assert!(before.1.is_some());
        glibc::read(&target).unwrap();
        assert_eq!(state(&target), before, "{case}");
    }
}

/// Pages of `from..to` that are not absent, joined to runs.
fn joined(read: impl FnOnce(&mut dyn FnMut(u64, u64, Page)) -> Result<(), Unreadable>) -> Vec<(u64, u64, Page)> {
    let mut runs: Vec<(u64, u64, Page)> = Vec::new();
    read(&mut |from, to, page| match runs.last_mut() {
        Some(last) if last.1 == from && last.2 == page => last.1 = to,
        _ => runs.push((from, to, page)),
    })
    .unwrap();
    runs
}

/// 1000 pages are touched, of 2^30.
#[test]
fn a_vast_untouched_mapping_is_read_exactly_and_in_time() {
    const BYTES: u64 = 1 << 42;
    const PAGE: u64 = 4096;
    let program = Program::start(&own(), "vast");
    let target = Target::open(program.pid()).unwrap();
    let target = target.until(Instant::now() + LOOK_WITHIN);
    let mappings = target.mappings().unwrap();
    let mut vast = mappings.iter().filter(|it| it.end - it.start >= BYTES);
    let vast = vast.next().unwrap();
    let presence = Presence::read(target.memory(), vast.start, vast.end).unwrap();
    assert_eq!(presence.bytes(vast.start, vast.end), 1000 * PAGE);
    assert_eq!(presence.swapped_bytes(), 0);
    let runs = presence.runs(vast.start, vast.end);
    assert_eq!(runs.iter().map(|run| run.1 as u64).sum::<u64>(), 1000 * PAGE);
    let longest = runs.iter().max_by_key(|run| run.1).unwrap();
    assert_eq!(longest.1 as u64, 900 * PAGE);
    for &(start, len) in &runs {
        let (start, end) = (start, start + len as u64);
        let around = (start.max(vast.start + PAGE) - PAGE, end.min(vast.end - PAGE) + PAGE);
        assert_eq!(presence.bytes(around.0, around.1), end - start);
        let read = joined(|each| by_pages(target.memory(), around.0, around.1, each));
        assert_eq!(read, [(start, end, Page::Present)]);
    }
    let heap = glibc::read(&target).unwrap();
    assert!(heap.breakdown.adds_up());
}

/// Where the kernel can, it searches the page map; the answer is that of reading it.
#[test]
fn a_search_of_the_page_map_and_a_read_of_it_agree() {
    for case in ["returned", "untouched", "threads_4", "mmapped"] {
        let program = Program::start(&own(), case);
        let target = Target::open(program.pid()).unwrap();
        let mut mappings = target.mappings().unwrap();
        mappings.retain(|mapping| mapping.readable && mapping.backing != Backing::Other);
        for mapping in mappings {
            let (start, end) = (mapping.start, mapping.end);
            let memory = target.memory();
            let found = joined(|each| memory.resident(start, end, each));
            let read = joined(|each| by_pages(memory, start, end, each));
            assert_eq!(found, read, "{case}: {start:#x}..{end:#x}");
        }
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
    assert_eq!(heap.breakdown.glibc_free().bytes, program.info().free);
}

#[test]
fn a_process_that_ended_is_said_to_have() {
    let mut program = Program::start(&own(), "fresh");
    let target = Target::open(program.pid()).unwrap();
    program.kill();
    let error = glibc::read(&target).unwrap_err();
    assert_eq!(error, Unsupported::Unreadable(Unreadable::Gone));
    let error = Target::open(program.pid()).unwrap_err();
    assert_eq!(error, Unreadable::Gone);
}

/// What was opened is the old program's memory, which is gone.
#[test]
fn a_process_that_started_another_program_is_said_to_have_ended() {
    let mut shell = Command::new("sh").args(["-c", "read line; exec sleep 60"]).stdin(Stdio::piped()).spawn().unwrap();
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
        Ok(target) => glibc::read(&target).unwrap_err(),
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
                match glibc::read(&target) {
                    Ok(heap) => assert!(heap.breakdown.adds_up()),
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

/// The process that the copy reads.
const TARGET: &str = "EBB_TEST_TARGET";

/// The permission that process `pid` is closed by, in words.
fn gate_for_nobody(pid: i32) -> String {
    gate_for(pid, |reader| {
        let mut command = Command::new(reader);
        as_nobody(&mut command);
        command
    })
}

/// The arguments of the copy that looks at process `pid`, as `start` starts it.
fn gate_for(pid: i32, start: impl Fn(&Path) -> Command) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let reader = folder.path().join("reader");
    copy(&std::env::current_exe().unwrap(), &reader);
    let mut command = start(&reader);
    command
        .args(["--exact", "untouched::reader", "--nocapture", "--ignored"])
        .env(TARGET, pid.to_string())
        .current_dir("/");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let gate = text.lines().find_map(|line| line.strip_prefix("gate: "));
    gate.unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Runs in the copy: tries to read, and says which gate was shut.
#[test]
#[ignore = "the other tests run it as another user"]
fn reader() {
    let pid: i32 = std::env::var(TARGET).unwrap().parse().unwrap();
    let error = match Target::open(pid).map_err(Unsupported::from) {
        Ok(target) => glibc::read(&target).err(),
        Err(error) => Some(error),
    };
    let Some(error) = error else {
        println!("gate: none");
        return;
    };
    assert_eq!(error, Unsupported::Unreadable(Unreadable::Refused));
    println!("gate: {:?}", permission::diagnose(pid).unwrap());
}

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        test_needs::note("only root can start processes of other users");
    }
    is_root
}

#[test]
fn another_users_process_is_closed() {
    if is_root() {
        let program = Program::start(&own(), "fresh");
        let gate = gate_for_nobody(program.pid());
        assert_eq!(gate, format!("{:?}", Gate::User { uid: 0 }));
    }
}

/// A container's root with `--cap-drop ALL --cap-add SYS_PTRACE`: a debugger that may not open other users' files.
#[test]
fn a_debugger_without_the_right_to_files_is_told_so() {
    if is_root() {
        let program = Program::start_with(&own(), "fresh", as_nobody);
        let with = |capabilities: &'static str| {
            gate_for(program.pid(), move |reader| {
                let mut command = Command::new("setpriv");
                command.arg(format!("--bounding-set=-all,{capabilities}")).arg(reader);
                command
            })
        };
        assert_eq!(with("+sys_ptrace"), format!("{:?}", Gate::Files { uid: 65534 }));
        assert_eq!(with("+dac_read_search"), format!("{:?}", Gate::User { uid: 65534 }));
        // With both it is open.
        assert_eq!(with("+sys_ptrace,+dac_read_search"), "none");
    }
}

#[test]
fn ones_own_process_that_closed_itself_is_closed() {
    if is_root() {
        let program = Program::start_with(&own(), "closed", as_nobody);
        assert_eq!(gate_for_nobody(program.pid()), "NonDumpable");
        // root reads it.
        assert!(program.read().breakdown.adds_up());
    }
}
