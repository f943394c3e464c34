//! What makes a process unfit for a call from outside, whatever its threads do.

use std::fs;

use ebb_inspect::Target;
use nix::errno::Errno;

use crate::refusal::{NotCalled, Unfit};

/// seccomp's strict mode, as /proc tells it.
const STRICT: u32 = 1;
/// Compares two processes' address spaces.
const KCMP_VM: i32 = 1;

/// Looks at all of them.
pub fn check(target: &Target) -> Result<(), NotCalled> {
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
