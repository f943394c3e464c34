//! The place at which a stopped thread stands: whether it may be led elsewhere there, and what it comes back to.
//!
//! A good place is a system call that malloc does not make: the wait that a thread is in, which will be called
//! again, or the end of one, whose result it takes along.

use ebb_inspect::exact::low_half;
use std::time::{Duration, Instant};

use libc::user_regs_struct;

use crate::waits::{Call, Ended, Limit, SYSTEM_CALL, Wait, ended};

/// What a stop came to.
pub enum Found {
    /// A good place.
    Here(Box<Place>),
    /// None, and none will come.
    Not,
    /// The end of the wait that it is in will be one.
    AtItsEnd,
    /// The end of a system call to come may be one.
    AtTheNext,
}

/// A place at which a thread may be led elsewhere.
pub struct Place {
    /// What it comes back to.
    pub registers: user_regs_struct,
    /// The system call's number.
    pub call: i64,
    /// Whether that is called again.
    pub is_called_again: bool,
    /// The registers with which it is let go if it is not led elsewhere, where they are others than it has.
    pub restarted: Option<user_regs_struct>,
}

impl Place {
    /// After a completed system call.
    pub fn behind(registers: user_regs_struct) -> Self {
        Self { call: registers.orig_rax.cast_signed(), registers, is_called_again: false, restarted: None }
    }

    /// Before a system call that was ended for the stop; with this much of its time left in that argument.
    fn again(registers: user_regs_struct, left_ms: Option<(usize, i32)>) -> Self {
        let mut before = before(&registers);
        // The only waits of this kind have it in their fourth argument.
        if let Some((3, left_ms)) = left_ms {
            before.r10 = i64::from(left_ms).cast_unsigned();
        }
        Self {
            registers: before,
            call: registers.orig_rax.cast_signed(),
            is_called_again: true,
            restarted: restarted(&registers).map(|_| before),
        }
    }
}

/// Where a thread was stopped.
pub fn find(registers: user_regs_struct, begun: Option<Instant>, pid: i32) -> Found {
    if registers.orig_rax.cast_signed() < 0 {
        return Found::AtTheNext;
    }
    let call = call_of(&registers);
    let again = |limit| Found::Here(Box::new(Place::again(registers, limit)));
    match (ended(registers.rax), call.wait()) {
        (Ended::Done, _) if is_good(&call, pid) => Found::Here(Box::new(Place::behind(registers))),
        (Ended::Done, _) => Found::AtTheNext,
        (_, Wait::Endless) if !is_good(&call, pid) => Found::AtTheNext,
        (_, Wait::Endless) => again(None),
        (Ended::GoOn, Wait::Timed) => Found::AtItsEnd,
        // A wait whose beginning was not seen began a moment ago: the thread was elsewhere when it was chosen.
        (Ended::Interrupted, Wait::Brittle(Limit::InMemory)) => again(None),
        (Ended::Interrupted, Wait::Brittle(Limit::Milliseconds(argument))) => {
            let limit_ms = low_half(call.arguments[argument]).cast_signed();
            let waited = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
            let left_ms = limit_ms.saturating_sub(i32::try_from(waited.as_millis()).unwrap_or(i32::MAX)).max(0);
            again(Some((argument, left_ms)))
        }
        (Ended::CallAgain | Ended::GoOn | Ended::Interrupted, _) => Found::Not,
    }
}

/// Whether malloc can have no part in this call. It reads files of the kernel's at times.
pub fn is_good(call: &Call, pid: i32) -> bool {
    call.is_outside_malloc()
        && call.file().is_none_or(|file| {
            let link = format!("/proc/{}/fd/{file}", pid);
            std::fs::read_link(link).is_ok_and(|path| !path.starts_with("/proc") && !path.starts_with("/sys"))
        })
}

/// The registers with which a thread that is in a system call calls it.
fn before(registers: &user_regs_struct) -> user_regs_struct {
    user_regs_struct {
        rip: registers.rip - SYSTEM_CALL.len() as u64,
        rax: registers.orig_rax,
        orig_rax: u64::MAX,
        ..*registers
    }
}

/// The same, for a call that failed because its thread was stopped, and that the kernel does not call again.
pub fn restarted(registers: &user_regs_struct) -> Option<user_regs_struct> {
    let failed = ended(registers.rax) == Ended::Interrupted;
    (failed && call_of(registers).fails_when_stopped()).then(|| before(registers))
}

/// The system call that a thread is in, or comes out of.
pub fn call_of(registers: &user_regs_struct) -> Call {
    Call {
        number: registers.orig_rax.cast_signed(),
        arguments: [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9],
    }
}
