//! Chooses a thread, tries, and sees it come back.

use std::fs;
use std::time::{Duration, Instant};

use ebb_inspect::{Target, Unreadable, permission};
use nix::errno::Errno;

use crate::attempt::{Attempt, EnteredThread};
use crate::function::Function;
use crate::refusal::{Left, NotCalled, Unfit};
use crate::task::{self, Activity};
use crate::waits::Wait;

/// Between two rounds, and what it doubles up to.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// A thread is not looked at shorter than this.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);
/// How often a thread is asked whether it has come back, or has begun to wait.
const STEP: Duration = Duration::from_micros(200);
/// A function that takes longer is left to itself.
const WATCHED_FOR: Duration = Duration::from_secs(60);

/// seccomp's strict mode, as /proc tells it.
const STRICT: u32 = 1;
/// Compares two processes' address spaces.
const KCMP_VM: i32 = 1;

/// A call that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The thread that made it.
    pub tid: i32,
    /// How long that thread stood still, all attempts together. No other thread did.
    pub stopped: Duration,
    /// How long it was in the function, to within 0.2 ms; `None` if it had not come back within a minute.
    pub ran: Option<Duration>,
    /// Attempts, this one included.
    pub attempts: u32,
    /// System call at which the thread was stopped.
    pub system_call: i64,
    /// Whether that system call was called again.
    pub is_called_again: bool,
}

/// Calls `function` in `target`, by the first thread that is at a good place within `patience`.
pub fn call(target: &Target, function: &Function, patience: Duration) -> Result<Called, NotCalled> {
    check(target)?;
    let until = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    let mut attempts = 0;
    loop {
        let mut left = Vec::new();
        let candidates = candidates(target, &mut left)?;
        let mut rest = u32::try_from(candidates.len()).unwrap_or(u32::MAX);
        for (_, tid, activity) in candidates {
            attempts += 1;
            // Each remaining one gets an equal part of the remaining time.
            let part = until.saturating_duration_since(Instant::now()) / rest.max(1);
            let part_ends = Instant::now() + part.max(SHORTEST_ATTEMPT);
            rest -= 1;
            match attempt(target, function, tid, activity, part_ends) {
                Ok(entered) => {
                    return Ok(Called {
                        tid,
                        stopped: entered.stopped,
                        ran: come_back(target, tid, &entered)?,
                        attempts,
                        system_call: entered.call,
                        is_called_again: entered.is_called_again,
                    });
                }
                Err(Left::Refused) => return Err(refused(target)),
                Err(Left::Filter(call)) => return Err(Unfit::Filter(call).into()),
                Err(Left::FilterUnread(why)) => return Err(Unfit::FilterUnread(why).into()),
                Err(why) => left.push(format!("thread {tid}: {why}")),
            }
            if Instant::now() >= until {
                break;
            }
        }
        if task::all(target.pid()).is_err() {
            return Err(NotCalled::Gone);
        }
        if Instant::now() + pause >= until {
            // The first few say it all.
            left.truncate(3);
            return Err(NotCalled::NoThread(left.join(", ")));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether the process is fit for a call from outside, whatever its threads do.
fn check(target: &Target) -> Result<(), NotCalled> {
    let process = target.process();
    let status = process.status().map_err(|_| NotCalled::Gone)?;
    if status.tracerpid != 0 {
        return Err(Unfit::Traced(status.tracerpid).into());
    }
    match status.state.chars().next() {
        Some('T' | 't') => return Err(Unfit::Stopped.into()),
        Some('Z' | 'X') => return Err(NotCalled::Gone),
        _ => {}
    }
    if has_shadow_stack(target.pid()) {
        return Err(Unfit::ShadowStack.into());
    }
    if shares_memory(target.pid(), status.ppid) {
        return Err(Unfit::Shared(status.ppid).into());
    }
    match status.seccomp {
        Some(STRICT) => Err(Unfit::Strict.into()),
        // A filter is looked at when the thread stands still that has it.
        _ => Ok(()),
    }
}

/// Control-flow enforcement for user code, a line that kernels without it do not have.
fn has_shadow_stack(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("x86_Thread_features:"))
        .is_some_and(|features| features.split_whitespace().any(|name| name == "shstk"))
}

/// Whether a process and its parent have one address space. A kernel without kcmp does not tell.
fn shares_memory(pid: i32, parent: i32) -> bool {
    // SAFETY: the call reads five integers and writes nothing.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, pid, parent, KCMP_VM, 0, 0) };
    Errno::result(order) == Ok(0)
}

/// The threads that may come to a good place, the best first; why others do not goes to `left`.
fn candidates(target: &Target, left: &mut Vec<String>) -> Result<Vec<(u8, i32, Activity)>, NotCalled> {
    let pid = target.pid();
    let mut found = Vec::new();
    for tid in task::all(pid)? {
        match task::activity(target, tid) {
            Ok(activity) => match (rank(activity), activity) {
                (Some(rank), _) => found.push((rank, tid, activity)),
                (None, Activity::Waiting(call)) => {
                    left.push(format!("thread {tid}: it waits in system call {}", call.number));
                }
                (None, _) => left.push(format!("thread {tid}: it waits for something else")),
            },
            Err(_) if task::has_ended(pid, tid) => {}
            Err(Unreadable::Refused) => return Err(refused(target)),
            Err(error) => return Err(error.into()),
        }
    }
    found.sort_by_key(|&(rank, tid, _)| (rank, tid));
    Ok(found)
}

/// Lower is better; nothing for a thread that is in no good place and does not leave it.
fn rank(activity: Activity) -> Option<u8> {
    match activity {
        Activity::Waiting(call) => match call.wait() {
            // These fail when they are stopped; if we were killed at that moment they would.
            Wait::Endless if call.is_brittle() => Some(2),
            Wait::Endless => Some(0),
            Wait::Timed => Some(3),
            Wait::Brittle(_) => Some(4),
            Wait::Other => None,
        },
        Activity::Running => Some(1),
        Activity::Other => None,
    }
}

fn attempt(
    target: &Target,
    function: &Function,
    tid: i32,
    activity: Activity,
    until: Instant,
) -> Result<EnteredThread, Left> {
    let waits_since = match activity {
        Activity::Waiting(call) if matches!(call.wait(), Wait::Brittle(_)) => {
            Some(next_wait(target.pid(), tid, until)?)
        }
        _ => None,
    };
    let mappings = target.mappings()?;
    let attempt = Attempt { target, mappings: &mappings, function, tid, waits_since, until };
    // When this thread ends, the kernel lets go of the other one.
    let made = std::thread::scope(|scope| scope.spawn(|| attempt.make()).join());
    made.unwrap_or_else(|_| Err(Left::Other("ebb's own thread failed".to_owned())))
}

/// Waits until the thread's present wait has ended. The thread may be in the next one by then.
fn next_wait(pid: i32, tid: i32, until: Instant) -> Result<Instant, Left> {
    let first = task::status(pid, tid)?.waits;
    loop {
        let before = Instant::now();
        if task::status(pid, tid)?.waits != first {
            return Ok(before - STEP);
        }
        if before >= until {
            return Err(Left::TimeLimit);
        }
        std::thread::sleep(STEP);
    }
}

/// Waits until the thread has been restored: the kernel gives it back its signal mask then, and at no other time.
fn come_back(target: &Target, tid: i32, entered: &EnteredThread) -> Result<Option<Duration>, NotCalled> {
    let begin = Instant::now();
    while begin.elapsed() < WATCHED_FOR {
        match task::status(target.pid(), tid) {
            Ok(status) if status.blocked == entered.mask => {}
            Ok(_) => return Ok(Some(begin.elapsed())),
            // It has come back and ended; or all have.
            Err(Unreadable::Gone) if !task::all(target.pid())?.is_empty() => {
                return Ok(Some(begin.elapsed()));
            }
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(STEP);
    }
    Ok(None)
}

/// The gate that is shut.
fn refused(target: &Target) -> NotCalled {
    match permission::diagnose(target.pid()) {
        Ok(gate) => NotCalled::Refused(gate),
        Err(error) => error.into(),
    }
}
