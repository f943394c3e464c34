//! A command that `ebb why -- CMD` starts, looks at, and ends.

use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::exit::{Exit, Failure};
use ebb_process::inherited;
use ebb_process::snapshot::{Target, TargetKind};
use ebb_process::target::Resolved;

/// How long it may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(20);

/// A command that runs, in a process group of its own; ends with this value.
#[derive(Debug)]
pub struct Subject {
    child: Child,
    /// The command as it was typed.
    asked: String,
}

impl Subject {
    /// Starts it. What it writes goes to stderr: stdout is for the diagnosis.
    pub fn start(command: &[OsString]) -> Result<Self, Failure> {
        use std::os::unix::process::CommandExt;
        let (program, arguments) = command.split_first().ok_or_else(|| Failure::usage("no command to start"))?;
        let mut start = Command::new(program);
        start.args(arguments).stdin(Stdio::null()).stdout(std::io::stderr()).process_group(0);
        inherited::restore_in(&mut start);
        let asked = program.to_string_lossy().into_owned();
        let child = start.spawn().map_err(|error| {
            let exit = match error.kind() {
                std::io::ErrorKind::NotFound => Exit::CommandNotFound,
                _ => Exit::NotExecutable,
            };
            Failure::new(exit, format!("{asked}: {error}"))
        })?;
        Ok(Self { child, asked })
    }

    pub fn run_for(&mut self, time: Duration) -> Result<Resolved, Failure> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Err(Failure::new(
                    Exit::NotEnoughEvidence,
                    format!("{} ended before it was looked at ({status})", self.asked),
                )
                .remedy("look earlier with --after SECONDS"));
            }
            std::thread::sleep(STEP.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(Resolved {
            target: Target { asked: self.asked.clone(), kind: TargetKind::Command },
            roots: vec![self.child.id() as i32],
            cgroup: None,
        })
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.child.id() as i32);
        // A group that is gone is no error.
        let _ = killpg(group, Signal::SIGTERM);
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(STEP);
        }
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}
