//! Whether a process stayed the same while it was read.

use std::path::PathBuf;

use procfs::process::{ProcState, Process as Proc};

use ebb_process::heap;
use ebb_process::snapshot::Process;

/// Less anonymous memory outside the heap is not worth reading the program for, and less change no doubt.
pub(super) const LEAST_BESIDE: u64 = 8 << 20;

/// The kernel's flag of a task that is ending (PF_EXITING): its memory may be gone already.
const EXITING: u32 = 4;

/// What tells a program in execution from another one in the same process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    started_ticks: u64,
    program: Option<PathBuf>,
    /// Where its stack begins: another place for each program that is executed.
    stack: u64,
}

impl Identity {
    /// Nothing for a process that is gone, or as good as.
    pub(super) fn of(pid: i32) -> Option<Self> {
        let process = Proc::new(pid).ok()?;
        let stat = process.stat().ok()?;
        let is_over = matches!(stat.state(), Ok(ProcState::Zombie | ProcState::Dead));
        (!is_over && stat.flags & EXITING == 0).then(|| Self {
            started_ticks: stat.starttime,
            program: process.exe().ok(),
            stack: stat.startstack,
        })
    }
}

/// Whether the anonymous memory of `process` has changed much since its mappings were read: memory that the heap does
/// not explain may have belonged to the heap a moment before.
pub(super) fn changed(process: &Process) -> bool {
    let then = process.heap.as_ref().and(process.status.anon);
    let now = then.and_then(|_| heap::anonymous_bytes(process.pid));
    Option::zip(then, now).is_some_and(|(then, now)| now.abs_diff(then) >= LEAST_BESIDE.max(then / 20))
}

/// What no reader found of a process that changes all the time may be its heap's.
pub(super) fn put_in_doubt(process: &mut Process) {
    let all = process.status.rss.unwrap_or(u64::MAX);
    if let Some(heap) = &mut process.heap {
        heap.missing = heap.missing.max(all);
        heap.notes.push("its memory changed each time it was read".to_owned());
    }
}
