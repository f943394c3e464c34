//! What the kernel says of one thread, without stopping it.

use ebb_inspect::target::reason;
use ebb_inspect::{Memory as _, Target, Unreadable};
use procfs::process::{ProcState, Process, Syscall};

use crate::waits::{CALL_BYTES, Call};

/// seccomp's mode with filters, as /proc tells it.
const FILTER: u32 = 2;

/// A thread's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether it is its process's first.
    pub is_first: bool,
    /// Signals that it blocks at this moment.
    pub blocked: u64,
    /// Signals that are pending, its own and its process's.
    pub pending: u64,
    /// Whether it has filters of system calls.
    pub is_filtered: bool,
    /// How often it gave up the processor: a wait that goes on leaves it as it is.
    pub waits: Option<u64>,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It runs, or could.
    Running,
    /// It waits in a system call.
    Waiting(Call),
    /// It waits for something else: a page, a debugger.
    Other,
}

/// The threads of a process.
pub fn all(pid: i32) -> Result<Vec<i32>, Unreadable> {
    let tasks = Process::new(pid).and_then(|process| process.tasks());
    Ok(tasks.map_err(reason)?.flatten().map(|task| task.tid).collect())
}

/// The state of thread `tid`.
pub fn status(pid: i32, tid: i32) -> Result<Status, Unreadable> {
    let task = Process::new(pid).and_then(|process| process.task_from_tid(tid));
    let status = task.and_then(|task| task.status()).map_err(reason)?;
    Ok(Status {
        is_first: status.tgid == tid,
        blocked: status.sigblk,
        pending: status.sigpnd | status.shdpnd,
        is_filtered: status.seccomp == Some(FILTER),
        waits: status.voluntary_ctxt_switches,
    })
}

/// Whether thread `tid` has ended, even if its parent has not waited for it yet. The kernel refuses to stop such a
/// thread with EPERM, as if we had no right to.
pub fn has_ended(pid: i32, tid: i32) -> bool {
    let task = Process::new(pid).and_then(|process| process.task_from_tid(tid));
    let state = task.and_then(|task| task.stat()).and_then(|stat| stat.state());
    match state {
        Ok(state) => matches!(state, ProcState::Zombie | ProcState::Dead),
        Err(error) => matches!(reason(error), Unreadable::Gone),
    }
}

/// What thread `tid` does. Needs the right to stop it.
pub fn activity(target: &Target, tid: i32) -> Result<Activity, Unreadable> {
    let pid = target.pid();
    let task = Process::new(pid).and_then(|process| process.task_from_tid(tid));
    Ok(match task.and_then(|task| task.syscall()).map_err(reason)? {
        Syscall::Running => Activity::Running,
        Syscall::Blocked { syscall_number: number @ 0.., argument_registers: arguments, program_counter, .. } => {
            let call = Call { number, arguments };
            Activity::Waiting(resumed(target, call, program_counter))
        }
        _ => Activity::Other,
    })
}

/// `call`, or the one that the kernel resumes in its name; `next` is the instruction after it.
pub fn resumed(target: &Target, call: Call, next: u64) -> Call {
    let mut code = [0; CALL_BYTES];
    let at = next.wrapping_sub(CALL_BYTES as u64);
    let is_read = call.is_resumed() && target.memory().copy(&[(at, CALL_BYTES)], &mut code).is_ok();
    if is_read { call.resumed(&code) } else { call }
}
