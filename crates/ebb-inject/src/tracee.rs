//! One thread of another process, held by ptrace: the only door to it, and the only unsafe code but the test's.
//!
//! Held by the thread of ours that seized it. When that thread ends, however it ends, the kernel lets the other
//! go on at once, without stopping it again: that is why each attempt has a thread of its own, and why
//! nothing has to be undone when `ebb` is killed.

use ebb_inspect::exact::usize_of;
use std::io::IoSlice;
use std::time::{Duration, Instant};

use libc::user_regs_struct;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::unistd::Pid;

use crate::xstate::Vectors;

/// Not in libc's list for this target.
const GET_SIGNAL_MASK: libc::c_uint = 0x420a;
const SET_SIGNAL_MASK: libc::c_uint = 0x420b;
const SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
/// The regset of the vector state.
const NT_X86_XSTATE: usize = 0x202;
/// More than any processor's vector state, AMX included.
const MOST_VECTOR_BYTES: usize = 64 << 10;
/// The flag that tells a stop at a system call from one at a signal.
const AT_SYSTEM_CALL: i32 = 0x80;
/// Stops come within microseconds as a rule; sleeping costs that many.
const SPIN: Duration = Duration::from_micros(500);
const STEP: Duration = Duration::from_micros(50);

/// Why a thread is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Because we asked.
    Requested,
    /// Before a system call.
    Entry,
    /// After a system call, whose result is in its register.
    Exit,
    /// A signal is about to be delivered.
    Signal(i32),
    /// The whole process was stopped (SIGSTOP, SIGTSTP...).
    WithAll,
    /// It ended.
    Gone,
}

/// A seized thread.
#[derive(Debug)]
pub struct Tracee {
    tid: Pid,
}

impl Tracee {
    /// Seizes it; it goes on running.
    pub fn seize(tid: i32) -> Result<Self, Errno> {
        let tid = Pid::from_raw(tid);
        ptrace::seize(tid, ptrace::Options::PTRACE_O_TRACESYSGOOD)?;
        Ok(Self { tid })
    }

    /// Asks it to stop, in or out of a system call.
    pub fn interrupt(&self) -> Result<(), Errno> {
        ptrace::interrupt(self.tid)
    }

    /// Waits for its next stop; `None` where there is none in time.
    pub fn wait(&self, until: Instant) -> Result<Option<Stop>, Errno> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.status()? {
                return self.stop(status).map(Some);
            }
            let now = Instant::now();
            if now >= until {
                return Ok(None);
            }
            if now - begin < SPIN { std::thread::yield_now() } else { std::thread::sleep(STEP) }
        }
    }

    /// Lets it go on to its next system call's entry or exit, with this signal.
    pub fn go(&self, signal: Option<i32>) -> Result<(), Errno> {
        self.request(libc::PTRACE_SYSCALL, 0, number_of(signal)?)
    }

    /// Lets it go for good.
    pub fn release(self, signal: Option<i32>) -> Result<(), Errno> {
        self.request(libc::PTRACE_DETACH, 0, number_of(signal)?)
    }

    /// Its registers.
    pub fn registers(&self) -> Result<user_regs_struct, Errno> {
        ptrace::getregs(self.tid)
    }

    /// Sets its registers, all at once.
    pub fn set_registers(&self, registers: user_regs_struct) -> Result<(), Errno> {
        ptrace::setregs(self.tid, registers)
    }

    /// Its vector state.
    pub fn vectors(&self) -> Result<Vectors, Errno> {
        let mut area = vec![0u8; MOST_VECTOR_BYTES];
        let mut range = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() };
        self.request(libc::PTRACE_GETREGSET, NT_X86_XSTATE, (&raw mut range) as usize)?;
        area.truncate(range.iov_len);
        Vectors::of_thread(area).ok_or(Errno::EIO)
    }

    /// The signals that it blocks, or will when the system call that it is in has ended.
    pub fn mask(&self) -> Result<u64, Errno> {
        let mut mask = 0u64;
        self.request(GET_SIGNAL_MASK, size_of::<u64>(), (&raw mut mask) as usize)?;
        Ok(mask)
    }

    /// Sets the signals that it blocks.
    pub fn set_mask(&self, mask: u64) -> Result<(), Errno> {
        self.request(SET_SIGNAL_MASK, size_of::<u64>(), (&raw const mask) as usize)
    }

    /// Its seccomp filter of that number, the newest first; `None` after the last. Takes CAP_SYS_ADMIN.
    pub fn filter(&self, number: usize) -> Result<Option<Vec<libc::sock_filter>>, Errno> {
        let count = |data: usize| {
            // SAFETY: with null it writes nothing, else as many instructions as it said with null.
            let found = unsafe { libc::ptrace(SECCOMP_GET_FILTER, self.tid.as_raw(), number, data) };
            usize::try_from(Errno::result(found)?).map_err(|_| Errno::EINVAL)
        };
        let instructions = match count(0) {
            Err(Errno::ENOENT) => return Ok(None),
            found => found?,
        };
        let nothing = libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 };
        let mut filter = vec![nothing; instructions];
        count(filter.as_mut_ptr() as usize)?;
        Ok(Some(filter))
    }

    /// Writes into its process's memory, where that may be written.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        write(self.tid, address, bytes)
    }

    /// Its state as waitpid tells it, without waiting.
    fn status(&self) -> Result<Option<i32>, Errno> {
        let mut status = 0;
        let flags = libc::__WALL | libc::WNOHANG;
        // SAFETY: `status` is a place for what the call writes. nix's own call knows no real-time signals.
        let found = unsafe { libc::waitpid(self.tid.as_raw(), &raw mut status, flags) };
        Errno::result(found).map(|found| (found != 0).then_some(status))
    }

    fn stop(&self, status: i32) -> Result<Stop, Errno> {
        if !libc::WIFSTOPPED(status) {
            return Ok(Stop::Gone);
        }
        let signal = libc::WSTOPSIG(status);
        match (status >> 16, signal) {
            (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => Ok(Stop::Requested),
            (libc::PTRACE_EVENT_STOP, _) => Ok(Stop::WithAll),
            (_, signal) if signal == libc::SIGTRAP | AT_SYSTEM_CALL => match ptrace::syscall_info(self.tid)?.op {
                libc::PTRACE_SYSCALL_INFO_EXIT => Ok(Stop::Exit),
                _ => Ok(Stop::Entry),
            },
            (_, signal) => Ok(Stop::Signal(signal)),
        }
    }

    fn request(&self, request: libc::c_uint, address: usize, data: usize) -> Result<(), Errno> {
        // SAFETY: the request reads or writes at most what its callers, all above, point it to: an
        // iovec with its buffer, or a word.
        let done = unsafe { libc::ptrace(request, self.tid.as_raw(), address, data) };
        Errno::result(done).map(drop)
    }
}

/// Writes into the memory of process `pid`, where that may be written.
pub fn write(pid: Pid, address: u64, bytes: &[u8]) -> Result<(), Errno> {
    let range = RemoteIoVec { base: usize_of(address), len: bytes.len() };
    let written = process_vm_writev(pid, &[IoSlice::new(bytes)], &[range])?;
    if written == bytes.len() { Ok(()) } else { Err(Errno::EFAULT) }
}

/// A signal's number, as ptrace takes it; 0 for none.
fn number_of(signal: Option<i32>) -> Result<usize, Errno> {
    usize::try_from(signal.unwrap_or(0)).map_err(|_| Errno::EINVAL)
}
