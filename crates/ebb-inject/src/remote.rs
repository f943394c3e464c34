//! malloc_trim by CPython's own remote execution (PEP 768, 3.14 and later): no thread is stopped, no register
//! touched. The interpreter is asked to run a script, and does it between two instructions of its main thread.
//!
//! What is written into the process: a path, a flag, and one bit, all in the main thread's state, which is not freed
//! while the interpreter runs. The bit shares its byte with others that the process sets itself (a signal has come,
//! the lock is wanted): one of these can be lost between our reading and our writing, so the script makes the
//! interpreter check them again (`script`). A request that is not taken in time is withdrawn.

use std::thread::sleep;
use std::time::{Duration, Instant};

use ebb_inspect::cpython::Remote;
use ebb_inspect::{Gate, Memory, Target, Unreadable, Unsupported, permission};
use nix::unistd::Pid;

use crate::tracee;

mod script;

use script::{Report, Script};

/// Between two looks at the flag, and what it doubles up to.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// From the flag's fall to the script's first word: the script is read and compiled, a thread is started.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);
/// A call that takes longer is left to itself.
const WATCHED_FOR: Duration = Duration::from_secs(60);

/// A call that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ran {
    /// The thread that was asked: the main one.
    pub thread: i32,
    /// How long it took until that came by.
    pub waited: Duration,
    /// How long malloc_trim ran, in a thread of its own; `None` if it had not come back within a minute.
    pub ran: Option<Duration>,
}

/// Why no call was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRun {
    /// It has no such thing, or has it switched off.
    #[error("{0}")]
    Unoffered(String),
    /// The process ended.
    #[error("it ended")]
    Gone,
    /// The kernel refuses us.
    #[error("{0}")]
    Refused(Gate),
    /// The main thread did not come by in time; the request was taken back.
    #[error(
        "its main thread {thread} ran no Python code for {:.1} s (it waits, or is in a library's code)",
        .after.as_secs_f64()
    )]
    NoThread {
        /// The main thread.
        thread: i32,
        /// How long it was waited for.
        after: Duration,
    },
    /// The script ran and failed, or did not run at all.
    #[error("{0}")]
    Failed(String),
}

impl From<Unreadable> for NotRun {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::Gone => Self::Gone,
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Has the interpreter in `target` call malloc_trim, if its main thread comes by within `patience`.
pub fn malloc_trim(target: &Target, patience: Duration) -> Result<Ran, NotRun> {
    let remote = Remote::read(target).map_err(|error| match error {
        Unsupported::Unreadable(error) => refusal(target, error),
        error => NotRun::Unoffered(error.to_string()),
    })?;
    if !remote.is_enabled {
        return Err(NotRun::Unoffered(
            "its remote execution is switched off (PYTHON_DISABLE_REMOTE_DEBUG, -X disable-remote-debug, or its build)"
                .to_owned(),
        ));
    }
    if remote.is_pending {
        return Err(NotRun::Unoffered("another tool's script is waiting to run in it".to_owned()));
    }
    let script = Script::write(target, remote.path_bytes).map_err(NotRun::Unoffered)?;
    let started = Instant::now();
    request(target, &remote, script.path()).map_err(|error| refusal(target, error))?;
    let taken = wait_until(started + patience, || is_pending(target, &remote).map(|it| !it))?;
    if !taken && !take_back(target, &remote, &script)? {
        return Err(NotRun::NoThread { thread: remote.thread, after: started.elapsed() });
    }
    let waited = started.elapsed();
    if !wait_until(Instant::now() + BEGINS_WITHIN, || alive(target, script.report().is_some()))? {
        return Err(NotRun::Failed(
            "it accepted the script but did not run it: look for an audit hook or a message on its stderr".to_owned(),
        ));
    }
    wait_until(Instant::now() + WATCHED_FOR, || alive(target, !matches!(script.report(), Some(Report::Began))))?;
    match script.report() {
        Some(Report::Failed(why)) => Err(NotRun::Failed(format!("its Python could not call malloc_trim: {why}"))),
        Some(Report::Trimmed(ran)) => Ok(Ran { thread: remote.thread, waited, ran: Some(ran) }),
        _ => Ok(Ran { thread: remote.thread, waited, ran: None }),
    }
}

/// Writes the request; the flag after the path, the bit at last.
fn request(target: &Target, remote: &Remote, path: &str) -> Result<(), Unreadable> {
    let text: Vec<u8> = path.bytes().chain([0]).collect();
    write(target, remote.path, &text)?;
    write(target, remote.pending, &1i32.to_ne_bytes())?;
    let mut bits = [0];
    target.memory().copy(&[(remote.eval_breaker, 1)], &mut bits)?;
    write(target, remote.eval_breaker, &[bits[0] | Remote::BIT])
}

/// Withdraws a request that was not taken. Returns whether it was taken at that very moment after all.
fn take_back(target: &Target, remote: &Remote, script: &Script) -> Result<bool, NotRun> {
    write(target, remote.pending, &0i32.to_ne_bytes())?;
    // One that saw the flag before it fell opens the file now.
    wait_until(Instant::now() + 10 * LONGEST_PAUSE, || alive(target, script.report().is_some()))
}

fn is_pending(target: &Target, remote: &Remote) -> Result<bool, Unreadable> {
    let mut flag = [0; 4];
    target.memory().copy(&[(remote.pending, 4)], &mut flag)?;
    Ok(i32::from_ne_bytes(flag) != 0)
}

/// `is_so`, or that the process ended.
fn alive(target: &Target, is_so: bool) -> Result<bool, NotRun> {
    if is_so || target.process().is_alive() { Ok(is_so) } else { Err(NotRun::Gone) }
}

/// Asks until it is so or `until` has come; whether it is so.
fn wait_until<E>(until: Instant, mut is_so: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    let mut pause = FIRST_PAUSE;
    loop {
        if is_so()? {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn refusal(target: &Target, error: Unreadable) -> NotRun {
    match (error, permission::diagnose(target.pid())) {
        (Unreadable::Refused, Ok(gate)) => NotRun::Refused(gate),
        (error, _) => error.into(),
    }
}

fn write(target: &Target, address: u64, bytes: &[u8]) -> Result<(), Unreadable> {
    tracee::write(Pid::from_raw(target.pid()), address, bytes)
        .map_err(|errno| Unreadable::from_io_at(&errno.into(), address))
}
