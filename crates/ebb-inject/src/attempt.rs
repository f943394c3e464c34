//! One attempt at one thread: stop it, see whether it stands at a good place, lead it into the function, let go.
//!
//! A good place is a system call that malloc does not make: the wait that a thread is in, which will be called
//! again, or the end of one, whose result it takes along. So the thread is not within malloc, holds no lock of
//! it, and is in no critical section of a few instructions. Only this thread is stopped.
//!
//! What always holds, whenever `ebb` is killed: the thread goes on as it was, or runs the function and is
//! restored by its frame. The frame is written first, below what the stack uses; then all registers are set
//! at once; then the signals are blocked, which the frame undoes; then the thread is let go.

use std::time::{Duration, Instant};

use ebb_inspect::memory::Memory;
use ebb_inspect::{Mapping, Target};
use libc::user_regs_struct;

use crate::Function;
use crate::frame::{Context, Frame};
use crate::place::{self, Found, Place};
use crate::refusal::Left;
use crate::seccomp;
use crate::stack::{Thread, Unfit, has_frame_of_a_handler};
use crate::task;
use crate::tracee::{Stop, Tracee};
use crate::waits::{Ended, SYSTEM_CALL, ended};

/// Code segment of 64-bit programs.
const CODE_SEGMENT: u64 = 0x33;
/// What a handler finds cleared: trap, direction, resume.
const CLEARED_FLAGS: u64 = 0x100 | 0x400 | 0x10000;
/// Signals that an instruction raises, and those of seccomp: blocked, they would kill.
const SYNCHRONOUS: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS);
/// The signals that cannot be blocked: the kernel leaves them out of every mask.
const UNBLOCKABLE: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);
/// glibc's own two signals. It lets no program block them and does so itself where it must not be interrupted.
const OF_LIBC: u64 = bit(32) | bit(33);
/// A thread that is not stopped by then waits uninterruptibly.
const STOPS_WITHIN: Duration = Duration::from_millis(200);
/// How long a system call that was watched from its entry may take before it is interrupted.
const ENDS_WITHIN: Duration = Duration::from_millis(20);
/// How long a lock of malloc may stay taken by others while the thread is stopped.
const LOCK_WITHIN: Duration = Duration::from_millis(5);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// A thread that was led into the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnteredThread {
    /// How long it stood still.
    pub stopped: Duration,
    /// The signals that it blocks until it is restored.
    pub mask: u64,
    /// The system call in which it was found.
    pub call: i64,
    /// Whether that will be called again.
    pub is_called_again: bool,
}

/// What the thread is doing since it was last let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// It was asked to stop.
    Requested,
    /// It runs to the next entry or exit of a system call.
    Running,
    /// It is in a system call that it entered at this time.
    Within(Instant),
    /// It is in a wait that must end by itself.
    Ending,
}

/// An attempt at one thread.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// The process.
    pub target: &'a Target,
    /// Its mappings.
    pub mappings: &'a [Mapping],
    /// What to call.
    pub function: &'a Function,
    /// The thread.
    pub tid: i32,
    /// When it began to wait, where that was seen.
    pub waits_since: Option<Instant>,
    /// When to give up.
    pub until: Instant,
}

impl Attempt<'_> {
    /// Makes it. To be called on a thread of its own, which ends with it.
    pub fn make(&self) -> Result<EnteredThread, Left> {
        let tracee = Tracee::seize(self.tid).map_err(|errno| match Left::from(errno) {
            Left::Refused if task::has_ended(self.target.pid(), self.tid) => Left::Gone,
            left => left,
        })?;
        let mut since = Since::Requested;
        let mut begun = self.waits_since;
        let mut mark = Instant::now();
        let mut stopped = Duration::ZERO;
        let mut is_resumed = false;
        tracee.interrupt()?;
        loop {
            let limit = match since {
                Since::Requested => mark + STOPS_WITHIN,
                Since::Within(entered) => (entered + ENDS_WITHIN).min(self.until),
                Since::Running | Since::Ending => self.until,
            };
            let stop = match tracee.wait(limit)? {
                Some(stop) => stop,
                None => match since {
                    Since::Requested => return Err(Left::Uninterruptible),
                    Since::Ending if is_resumed => return Err(Left::Resumed),
                    Since::Ending => return Err(Left::TimeLimit),
                    Since::Running => return Err(Left::NoPlace),
                    Since::Within(entered) => {
                        begun = Some(entered);
                        since = Since::Requested;
                        mark = Instant::now();
                        tracee.interrupt()?;
                        continue;
                    }
                },
            };
            // From when it was asked, where it was: it may have stopped at once.
            if since != Since::Requested {
                mark = Instant::now();
            }
            let now = Instant::now();
            let mut signal = None;
            let next = match stop {
                Stop::Gone => return Err(Left::Gone),
                Stop::WithAll => {
                    tracee.release(None)?;
                    return Err(Left::Stopped);
                }
                Stop::Signal(number) => {
                    signal = Some(number);
                    since
                }
                // The kernel's own second call of a wait that must end by itself.
                Stop::Entry if since == Since::Ending => since,
                Stop::Entry => Since::Within(now),
                Stop::Exit => {
                    let registers = tracee.registers()?;
                    let call = place::call_of(&registers);
                    if ended(registers.rax) == Ended::Done && place::is_good(&call, self.target.pid()) {
                        let place = Place::behind(registers);
                        return self.enter(tracee, &place, stopped, mark);
                    }
                    Since::Running
                }
                Stop::Requested => {
                    let registers = self.resumed(tracee.registers()?);
                    is_resumed = place::call_of(&registers).is_resumed();
                    match place::find(registers, begun, self.target.pid()) {
                        Found::Here(place) => return self.enter(tracee, &place, stopped, mark),
                        Found::Not => {
                            return self.leave(tracee, place::restarted(&registers), Left::NoPlace);
                        }
                        Found::AtItsEnd => Since::Ending,
                        Found::AtTheNext => Since::Running,
                    }
                }
            };
            if now >= self.until {
                tracee.release(signal)?;
                return Err(Left::NoPlace);
            }
            since = next;
            stopped += mark.elapsed();
            tracee.go(signal)?;
            mark = Instant::now();
        }
    }

    /// The registers of a thread in a system call that the kernel resumes, as if it had entered that call itself, where
    /// it may be called again.
    fn resumed(&self, registers: user_regs_struct) -> user_regs_struct {
        let call = task::resumed(self.target, place::call_of(&registers), registers.rip);
        user_regs_struct { orig_rax: call.number.cast_unsigned(), ..registers }
    }

    /// Leads the thread into the function, or lets it go as it was.
    fn enter(&self, tracee: Tracee, place: &Place, stopped: Duration, mark: Instant) -> Result<EnteredThread, Left> {
        match self.prepare(&tracee, place) {
            Ok((registers, mask)) => {
                tracee.set_registers(registers)?;
                tracee.set_mask(mask)?;
                tracee.release(None)?;
                Ok(EnteredThread {
                    stopped: stopped + mark.elapsed(),
                    mask,
                    call: place.call,
                    is_called_again: place.is_called_again,
                })
            }
            Err(left) => self.leave(tracee, place.restarted, left),
        }
    }

    /// Lets the thread go as it was. A wait that failed because it was stopped is called again by us, where
    /// others are by the kernel; unless a signal is there, which may end it.
    fn leave(&self, tracee: Tracee, restarted: Option<user_regs_struct>, left: Left) -> Result<EnteredThread, Left> {
        if let Some(restarted) = restarted {
            let pending = task::status(self.target.pid(), self.tid)?.pending;
            if pending & !tracee.mask()? == 0 {
                tracee.set_registers(restarted)?;
            }
        }
        tracee.release(None)?;
        Err(left)
    }

    /// Writes the frame; the registers and the signal mask with which the thread enters the function.
    fn prepare(&self, tracee: &Tracee, place: &Place) -> Result<(user_regs_struct, u64), Left> {
        let registers = place.registers;
        if registers.cs != CODE_SEGMENT {
            return Err(Left::OtherCode);
        }
        let memory = self.target.memory();
        if place.is_called_again {
            let mut code = [0; 2];
            memory.copy(&[(registers.rip, code.len())], &mut code)?;
            if code != SYSTEM_CALL {
                return Err(Left::OtherCode);
            }
        }
        let mask = tracee.mask()?;
        if mask & OF_LIBC != 0 {
            return Err(Left::Critical);
        }
        let status = task::status(self.target.pid(), self.tid)?;
        if status.pending & !mask != 0 {
            return Err(Left::SignalPending);
        }
        if status.is_filtered {
            seccomp::check(tracee)?;
        }
        let context = Context { registers, mask, vectors: tracee.vectors()? };
        let frame = Frame::new(&context, self.function.restorer);
        let thread = Thread { is_first: status.is_first, stack_pointer: registers.rsp, own_data: registers.fs_base };
        let (from, to) = thread.used(self.mappings, frame.lowest())?;
        if has_frame_of_a_handler(self.target, from, to)? {
            return Err(Unfit::InHandler.into());
        }
        self.wait_for_locks()?;
        tracee.write(frame.address, &frame.bytes)?;
        let entry = user_regs_struct {
            rip: self.function.entry,
            rsp: frame.address,
            rdi: self.function.argument,
            rax: 0,
            // In no system call, so the kernel begins none again.
            orig_rax: u64::MAX,
            eflags: registers.eflags & !CLEARED_FLAGS,
            ..registers
        };
        Ok((entry, mask | !(SYNCHRONOUS | UNBLOCKABLE)))
    }

    /// Sees each lock free once. The thread is stopped, so it holds none of them.
    fn wait_for_locks(&self) -> Result<(), Left> {
        let until = Instant::now() + LOCK_WITHIN;
        let mut taken = self.function.locks.clone();
        loop {
            let ranges: Vec<(u64, usize)> = taken.iter().map(|&lock| (lock, 4)).collect();
            let mut words = vec![0; ranges.len() * 4];
            self.target.memory().copy(&ranges, &mut words)?;
            let (words, _) = words.as_chunks::<4>();
            let mut words = words.iter();
            taken.retain(|_| words.next().is_some_and(|word| *word != [0; 4]));
            match () {
                () if taken.is_empty() => return Ok(()),
                () if Instant::now() >= until => return Err(Left::Locked),
                () => std::thread::yield_now(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// The kernel refuses a thread that has ended with the word for one that we have no right to.
    #[test]
    fn a_thread_that_has_ended_is_no_refusal() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let pid = i32::try_from(child.id()).expect("a pid");
        let function = loop {
            let target = Target::open(pid).expect("it lives");
            // Until its loader has mapped libc.
            if let Ok(function) = Function::malloc_trim(&target) {
                break function;
            }
        };
        let target = Target::open(pid).expect("it lives");
        let mappings = target.mappings().expect("it lives");
        drop(child.stdin.take());
        while !task::has_ended(pid, pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let attempt = Attempt {
            target: &target,
            mappings: &mappings,
            function: &function,
            tid: pid,
            waits_since: None,
            until: Instant::now() + STOPS_WITHIN,
        };
        assert_eq!(Tracee::seize(pid).unwrap_err(), nix::errno::Errno::EPERM);
        assert_eq!(attempt.make(), Err(Left::Gone));
        child.wait().expect("it ended");
    }
}
