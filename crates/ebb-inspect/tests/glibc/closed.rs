//! Processes whose memory is closed to us: the gate is named.
//!
//! As root nothing is closed, so the reading is done by a copy of this test program that runs as user
//! `nobody`. Without root that cannot be set up, and the tests say so.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use ebb_inspect::{Gate, Target, Unreadable, Unsupported, glibc, permission};

use crate::program::{Program, as_nobody, copy, own};

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
        .args(["--exact", "closed::reader", "--nocapture", "--ignored"])
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
