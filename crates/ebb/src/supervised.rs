//! A look in a process of its own. A thread that reads a file of a FUSE server which has stopped cannot be killed, and a
//! program with such a thread does not end for the process that waits for it. So `ebb` waits for its other half and ends when that
//! has done its work, whether all of its threads are gone or not.
//!
//! Used by the verbs that look once. The two halves are one program: same arguments, files and terminal.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};
use procfs::process::{ProcState, Process};

use crate::exit::Exit;

/// What the half that looks is called.
const NAME: &str = "ebb-look";
/// Between two questions whether it has ended; one that has gets as long to lose its threads.
const STEP: Duration = Duration::from_millis(500);

/// Does `work` in a process of its own.
pub fn supervised(work: impl FnOnce() -> ExitCode) -> ExitCode {
    let mut arguments = std::env::args_os();
    if arguments.next().is_some_and(|name| name == NAME) {
        // A signal that ends the other half is meant for this one as well.
        let _ = set_pdeathsig(Signal::SIGKILL);
        ebb_process::target::set_supervisor(nix::unistd::getppid().as_raw());
        let code = work();
        let_go_of_terminal();
        return code;
    }
    let spawned = Command::new("/proc/self/exe").arg0(NAME).args(arguments).spawn();
    let Ok(mut child) = spawned else {
        return work();
    };
    let pid = child.id().cast_signed();
    let (ended, waits) = mpsc::channel();
    // The receiver is gone where its threads were not waited for.
    std::thread::spawn(move || ended.send(child.wait()));
    let mut was_zombie = false;
    loop {
        match waits.recv_timeout(STEP) {
            Ok(Ok(status)) => return code(status),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Exit::Internal.into(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let stat = Process::new(pid).and_then(|it| it.stat());
        let Some(stat) = stat.ok().filter(|it| matches!(it.state(), Ok(ProcState::Zombie))) else {
            continue;
        };
        if was_zombie {
            return code(ExitStatus::from_raw(stat.exit_code.unwrap_or(0)));
        }
        was_zombie = true;
    }
}

/// A thread that cannot be killed would keep a pipe open, whose reader waits for its end.
fn let_go_of_terminal() {
    let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    // If this fails, the pipe stays open until the process ends.
    let _ = (dup2_stdin(&null), dup2_stdout(&null), dup2_stderr(&null));
}

/// As a shell has it.
fn code(status: ExitStatus) -> ExitCode {
    let of_signal = || status.signal().map_or(i32::from(Exit::Internal.code()), |it| 128 + it);
    ExitCode::from(u8::try_from(status.code().unwrap_or_else(of_signal)).unwrap_or(Exit::Internal.code()))
}
