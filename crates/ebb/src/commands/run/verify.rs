//! `ebb run --verify`: starts the program as a child, looks where each of its processes takes its
//! `malloc` from, reports once, and from then on only passes signals on and waits.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::report::{ProcessReport, Report, Style};
use super::start::{Start, not_started};
use crate::exit::{Exit, Failure};
use ebb_process::elf::Elf;
use ebb_process::{MallocSource, Tree, Unreadable, identity, inherited, malloc_source};

mod forward;

/// A short program must be caught between its start and its end, so the first looks follow closely.
const CLOSE_LOOKS: Duration = Duration::from_millis(100);
const CLOSE_INTERVAL: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_millis(25);

/// One program in one process; a process that executes another one becomes another entry.
type Key = (i32, u64, PathBuf);

/// Starts the program, says within `time` what it runs on, and ends as it ends.
pub(super) fn run(start: &Start, allocator: &str, time: Duration, style: Style) -> Result<ExitCode, Failure> {
    let mut forwarder = forward::Forwarder::install()?;
    let mut child = spawn(start)?;
    let pid = child.id() as i32;
    forwarder.start(Pid::from_raw(pid))?;

    let own_program = std::env::current_exe().unwrap_or_default();
    let mut seen = Observations::default();
    let begin = Instant::now();
    while begin.elapsed() < time {
        let ended = wait_for_end(pid, WaitPidFlag::WNOHANG)? != WaitStatus::StillAlive;
        seen.look(pid, &own_program);
        if ended {
            break;
        }
        thread::sleep(if begin.elapsed() < CLOSE_LOOKS { CLOSE_INTERVAL } else { INTERVAL });
    }
    let mut err = io::stderr().lock();
    for line in seen.report(pid, allocator, start).lines(style) {
        // A closed stderr must not end the program that we stand for.
        let _ = writeln!(err, "{line}");
    }
    drop(err);

    wait_for_end(pid, WaitPidFlag::empty())?;
    forwarder.stop();
    end_like(child.wait()?)
}

fn spawn(start: &Start) -> Result<Child, Failure> {
    let mut command = Command::new(&start.file);
    if let Some((name, arguments)) = start.arguments.split_first() {
        command.arg0(name).args(arguments);
    }
    command.env_clear().envs(&start.environment);
    inherited::restore_in(&mut command);
    command.spawn().map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        Some(errno) => not_started(start, errno),
        None => error.into(),
    })
}

/// What was found of each process; a later look replaces an earlier one that knew less.
#[derive(Default)]
struct Observations {
    order: Vec<Key>,
    found: BTreeMap<Key, Result<MallocSource, Unreadable>>,
}

impl Observations {
    fn look(&mut self, root: i32, own_program: &std::path::Path) {
        let Ok(tree) = Tree::of(root) else {
            return;
        };
        for &pid in tree.pids() {
            let Some((started, program)) = identity(pid) else {
                continue;
            };
            // Between fork and exec the child is still a copy of ebb.
            if pid == root && program == own_program {
                continue;
            }
            let key = (pid, started, program);
            if matches!(self.found.get(&key), Some(Ok(_))) {
                continue;
            }
            let now = malloc_source(pid);
            // It may have executed another program in between: then what we read is not this one's.
            if identity(pid).is_some_and(|(_, program)| program != key.2) {
                continue;
            }
            if !self.found.contains_key(&key) {
                self.order.push(key.clone());
            }
            self.found.insert(key, now);
        }
    }

    fn report(&self, root: i32, allocator: &str, start: &Start) -> Report {
        let library = start.choice.library();
        // With --child the others are to run as they are.
        let is_meant = |(pid, _, program): &&Key| match &start.child {
            Some(child) => *pid != root && program == child,
            None => true,
        };
        let is_ours = |source: &MallocSource| match library {
            Some(library) => source.is(&library.path),
            None => source.is_libc() || *source == MallocSource::Static,
        };
        let bits = library.and_then(|it| Elf::read(&it.path).ok()).map(|elf| elf.machine.bits);
        let mut unread = 0;
        let mut processes = Vec::new();
        for key in self.order.iter().filter(is_meant) {
            let Some(found) = self.found.get(key) else {
                continue;
            };
            if matches!(found, Err(Unreadable::Gone | Unreadable::Starting)) {
                unread += 1;
                continue;
            }
            let program = key.2.display().to_string();
            let process = ProcessReport::new(key.0, program, found, is_ours);
            processes.push(match (found, bits) {
                (Err(Unreadable::Bits(own)), Some(bits)) if *own != bits => {
                    process.refusing(format!("a {own}-bit program: the library has {bits} bits"))
                }
                _ => process,
            });
        }
        let path = library.map(|library| library.path.display().to_string());
        let child = start.child.as_ref().map(|program| program.display().to_string());
        Report::new(allocator, path, processes, unread).of_child(child)
    }
}

/// Waits without reaping: its number stays its own until it is reaped, so that no signal can reach a stranger.
fn wait_for_end(pid: i32, flags: WaitPidFlag) -> Result<WaitStatus, Failure> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | flags;
    loop {
        match waitid(Id::Pid(Pid::from_raw(pid)), flags) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
            Ok(status) => return Ok(status),
        }
    }
}

/// Ends this process as the program ended: with its exit status, or by the same signal.
fn end_like(status: ExitStatus) -> Result<ExitCode, Failure> {
    if let Some(signal) = status.signal() {
        // No signal ends the first process of a container.
        if std::process::id() != 1 {
            // The program has left its core already; ours would only bury it.
            let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
        // Where that did not end us: what a shell reports for a signal.
        return Ok(ExitCode::from(128 + signal as u8));
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map(ExitCode::from).ok_or_else(|| Failure::new(Exit::Internal, "it is not known how the program ended"))
}
