//! Starts and stops the processes of a trial. The only place in `trial` that spawns.
//!
//! Every process leads a group of its own, so that a Ctrl-C at the terminal reaches only `ebb`, which
//! then stops them in order. Output goes to files, so nothing has to be pumped and the last lines are
//! there when something dies. Allocator settings of the caller's own environment never leak into a run.

use super::container::Running;
use super::interrupt::{Groups, Interrupt};
use ebb_process::environ;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// In the environment of everything that a run starts: what left its group is found by it.
const RUN_MARK: &str = "EBB_RUN";

/// Settings of allocators, which would make a variant something else than its name says.
const ALLOCATOR_SETTINGS: [&str; 8] = [
    "LD_PRELOAD", "MALLOC_", "EBB_CONF", "MIMALLOC_", "TCMALLOC_", "GLIBC_TUNABLES", "_RJEM_MALLOC_CONF",
    "PYTHONMALLOC",
];

/// How long an engine may name a process that has ended.
const UNSEEN_AT_MOST: Duration = Duration::from_secs(5);
/// How much of a log's end is read for its last lines.
const TAIL_BYTES: u64 = 16 * 1024;
/// How many last lines are shown.
const TAIL_LINES: usize = 12;

/// What to start.
#[derive(Debug)]
pub struct Launch<'a> {
    /// What messages call it.
    pub name: String,
    /// Argument list, filled in.
    pub command: Vec<String>,
    /// Where it runs.
    pub cwd: &'a Path,
    /// Added to the cleaned environment of `ebb`.
    pub env: &'a BTreeMap<String, String>,
    /// Marks everything of a run.
    pub run_mark: &'a str,
    /// The `cgroup.procs` files of cgroups that it enters before it begins.
    pub procs_files: &'a [PathBuf],
    /// The container that the command runs in the foreground.
    pub container: Option<Running>,
    /// Its output.
    pub stdout: PathBuf,
    /// Its errors; may be the same file.
    pub stderr: PathBuf,
}

/// A process that was started; dropped it is killed with its group.
#[derive(Debug)]
pub struct Process {
    /// What messages call it.
    pub name: String,
    child: Child,
    groups: Groups,
    container: Option<Running>,
    /// The first process of the container.
    in_container: Option<u32>,
    stdout: PathBuf,
    stderr: PathBuf,
    ended: Option<ExitStatus>,
}

impl<'a> Launch<'a> {
    /// Outside of any cgroup of its own; output and errors go into one log.
    pub fn new(
        name: String,
        command: Vec<String>,
        cwd: &'a Path,
        env: &'a BTreeMap<String, String>,
        run_mark: &'a str,
        log: PathBuf,
    ) -> Launch<'a> {
        Launch {
            name,
            command,
            cwd,
            env,
            run_mark,
            procs_files: &[],
            container: None,
            stdout: log.clone(),
            stderr: log,
        }
    }

    /// Starts it.
    pub fn start(self, groups: &Groups) -> Result<Process, String> {
        let name = self.name;
        let problem = |what: &str, error: &dyn std::fmt::Display| format!("{name}: {what}: {error}");
        let (program, arguments) = self.command.split_first().ok_or(format!("{name}: the command is empty"))?;
        let program = located(program, self.cwd);
        let stdout = File::create(&self.stdout).map_err(|error| problem("its log", &error))?;
        let stderr = if self.stderr == self.stdout { stdout.try_clone() } else { File::create(&self.stderr) };
        // Opened here: an error of the start would blame the program.
        let stdin = File::open("/dev/null").map_err(|error| problem("/dev/null, its standard input", &error))?;
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .current_dir(self.cwd)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr.map_err(|error| problem("its log", &error))?)
            .process_group(0);
        for (key, _) in std::env::vars_os() {
            if key.to_str().is_some_and(is_allocator_setting) {
                command.env_remove(key);
            }
        }
        command.envs(self.env).env(RUN_MARK, self.run_mark);
        die_with_parent(&mut command);
        let procs_files = self.procs_files.iter().map(|file| {
            let opened = File::options().write(true).open(file);
            opened.map_err(|error| problem(&file.display().to_string(), &error))
        });
        enter(&mut command, procs_files.collect::<Result<_, _>>()?);
        let child = command.spawn().map_err(|error| problem(&program.display().to_string(), &error))?;
        groups.add(child.id());
        self.container.iter().for_each(|container| groups.add_container(container));
        Ok(Process {
            child,
            groups: groups.clone(),
            container: self.container,
            in_container: None,
            stdout: self.stdout,
            stderr: self.stderr,
            name,
            ended: None,
        })
    }
}

/// Should `ebb` be killed outright, the kernel takes its direct children along.
fn die_with_parent(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec and makes one system call; it neither allocates
    // nor takes a lock.
    unsafe {
        command.pre_exec(|| nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(std::io::Error::from));
    }
}

/// The process enters cgroups before it runs, so that nothing of it is outside.
fn enter(command: &mut Command, procs_files: Vec<File>) {
    if procs_files.is_empty() {
        return;
    }
    // SAFETY: the closure runs between fork and exec and makes one system call per file; the files were
    // opened before, and it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            for file in &procs_files {
                // 0 is the process that writes.
                nix::unistd::write(file, b"0")?;
            }
            Ok(())
        });
    }
}

/// Whether a variable is a setting of an allocator.
pub fn is_allocator_setting(key: &str) -> bool {
    ALLOCATOR_SETTINGS.iter().any(|setting| match setting.strip_suffix('_') {
        Some(_) => key.starts_with(setting),
        None => key == *setting,
    })
}

/// A program with a `/` is taken from the folder it runs in, one without from PATH.
fn located(program: &str, cwd: &Path) -> PathBuf {
    if program.contains('/') { cwd.join(program) } else { PathBuf::from(program) }
}

impl Process {
    /// Its number, or that of the first process in its container, once that was [found](Self::find_container).
    pub fn pid(&self) -> u32 {
        self.in_container.unwrap_or(self.child.id())
    }

    /// Waits until its container, if it runs one, has a process; the message says why there is none.
    pub fn find_container(&mut self, limit: Duration, interrupt: &Interrupt) -> Result<(), String> {
        let Some(container) = self.container.clone() else {
            return Ok(());
        };
        let mut unseen_since = None;
        let found = interrupt.wait_for(limit, || match container.pid() {
            Some(pid) if Path::new("/proc").join(pid.to_string()).exists() => Some(Ok(pid)),
            pid => {
                if let Some(status) = self.ended() {
                    return Some(Err(format!("{} {} at once", self.name, describe(status))));
                }
                let since = *unseen_since.get_or_insert_with(Instant::now);
                let pid = pid.filter(|_| since.elapsed() > UNSEEN_AT_MOST)?;
                Some(Err(format!(
                    "{} is process {pid} of its container's engine, which runs on another machine than ebb",
                    self.name
                )))
            }
        });
        let nothing = || Err(format!("{} has no process after {} s", self.name, limit.as_secs_f64()));
        self.in_container = Some(found.unwrap_or_else(nothing)?);
        Ok(())
    }

    /// Whether the engine of its container says that it was killed for lack of memory.
    pub fn was_oom_killed(&self) -> bool {
        self.container.as_ref().is_some_and(Running::was_oom_killed)
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Waits for its end; the message says how it failed.
    pub fn finish(&mut self, limit: Duration, interrupt: &Interrupt) -> Result<(), String> {
        match interrupt.wait_for(limit, || self.ended()) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("{} {}", self.name, describe(status))),
            None if interrupt.is_set() => Err(format!("{} was interrupted", self.name)),
            None => Err(format!("{} was not finished after {} s", self.name, limit.as_secs_f64())),
        }
    }

    /// What it wrote to stdout.
    pub fn output(&self) -> String {
        read(&self.stdout)
    }

    /// What it wrote to stderr, where that is a file of its own.
    pub fn errors(&self) -> String {
        if self.stderr == self.stdout { String::new() } else { read(&self.stderr) }
    }

    /// The text of all its output so far.
    pub fn all_output(&self) -> String {
        self.output() + &self.errors()
    }

    /// The last lines of its errors, or of its output where it wrote no errors.
    pub fn last_lines(&self) -> Vec<String> {
        let lines = last_lines_of(&self.stderr);
        if lines.is_empty() { last_lines_of(&self.stdout) } else { lines }
    }

    /// SIGTERM to the group, SIGKILL to its remaining processes after `grace`.
    pub fn stop(&mut self, grace: Duration) {
        let group = Pid::from_raw(self.child.id() as i32);
        let _ = killpg(group, Signal::SIGTERM);
        let deadline = Instant::now() + grace;
        // The leader may be gone while its workers are not: the group is asked, not the leader.
        while (self.ended().is_none() || killpg(group, None).is_ok()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }

    fn kill(&mut self) {
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
        self.groups.remove(self.child.id());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        // Only now: what an engine or a cgroup tells of a container is gone with it.
        self.container.iter().for_each(|container| self.groups.remove_container(container));
    }
}

/// A log as text; nothing where it cannot be read.
fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Says how a process ended.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => match Signal::try_from(signal) {
            Ok(name) => format!("was ended by {name}"),
            Err(_) => format!("was ended by signal {signal}"),
        },
        (None, None) => "ended".into(),
    }
}

/// The last lines of a file; none where it cannot be read.
pub fn last_lines_of(path: &Path) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let lines: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].to_vec()
}

/// Kills what a run started and what then left its group (a daemon that called setsid).
pub fn kill_strays(run_mark: &str) {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        let mark = environ::at_start(pid).ok().and_then(|mut it| it.remove(OsStr::new(RUN_MARK)));
        if mark.is_some_and(|mark| mark == run_mark) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests;
