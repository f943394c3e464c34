//! System calls by what a thread loses that is stopped in one. Pure.
//!
//! The kernel ends a wait to stop a thread, and begins it again when the thread goes on. Whether a frame can
//! do the same (by calling again) depends on the call.

use ebb_inspect::exact::low_half;

/// EINTR and the kernel's four words for "to be called again", as a register holds them.
pub const EINTR: i64 = -4;
const CALL_AGAIN: std::ops::RangeInclusive<i64> = -514..=-512;
const GO_ON_AFTER_RESTART: i64 = -516;

/// Futex operations, without the flags for private ones and for the clock.
const FUTEX_WAIT: u64 = 0;
const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_OPERATION: u64 = 127;
/// `TIMER_ABSTIME`.
const ABSOLUTE: u64 = 1;

/// A system call that a thread is in: its number and arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number.
    pub number: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What becomes of a wait that is ended to stop its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Called again it goes on as if nothing had been: it has no time limit, or an absolute one, or the kernel
    /// writes down the remaining time.
    Endless,
    /// Its time limit is known to the kernel alone, which forgets it when a frame is restored: it has to end by
    /// itself.
    Timed,
    /// It fails when its thread is stopped: it may be called again if it is known when it began.
    Brittle(Limit),
    /// Not one that a thread is stopped in.
    Other,
}

/// The time limit of a wait that fails when its thread is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Milliseconds in this argument: a repeated call gets the remaining time.
    Milliseconds(usize),
    /// In the program's memory, which is left as it is: called again, its time begins anew.
    InMemory,
}

/// `mov $..., %eax`, which loads the number of a system call.
const LOAD_NUMBER: u8 = 0xb8;
/// `syscall`, by which programs of 64 bits enter the kernel.
pub const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// Bytes of both.
pub const CALL_BYTES: usize = 7;

impl Call {
    /// Whether the kernel resumes a wait that a signal has stopped: its number is that of `restart_syscall` then,
    /// and its arguments are still those of the wait.
    pub fn is_resumed(&self) -> bool {
        self.number == libc::SYS_restart_syscall
    }

    /// The call that is resumed, told by `code`, the bytes up to the next instruction. Only of `poll` without a time
    /// limit: it may be called again as it was. For all other calls only the kernel knows the remaining time.
    pub fn resumed(self, code: &[u8; CALL_BYTES]) -> Self {
        let [load, number @ .., _, _] = *code;
        let is_poll = i64::from(i32::from_le_bytes(number)) == libc::SYS_poll;
        let is_call = load == LOAD_NUMBER && code[CALL_BYTES - 2..] == SYSTEM_CALL;
        let poll = Self { number: libc::SYS_poll, ..self };
        if self.is_resumed() && is_call && is_poll && poll.wait() == Wait::Endless { poll } else { self }
    }

    /// What becomes of it.
    pub fn wait(&self) -> Wait {
        let argument = |number: usize| self.arguments[number];
        let unlimited = |number: usize| low_half(argument(number)).cast_signed() < 0;
        match self.number {
            libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_wait4
            | libc::SYS_waitid
            | libc::SYS_pause
            | libc::SYS_flock
            // The kernel writes their remaining time into their argument.
            | libc::SYS_select
            | libc::SYS_pselect6
            | libc::SYS_ppoll => Wait::Endless,
            libc::SYS_poll if unlimited(2) => Wait::Endless,
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait if unlimited(3) => Wait::Endless,
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => Wait::Brittle(Limit::Milliseconds(3)),
            libc::SYS_semop => Wait::Endless,
            libc::SYS_semtimedop | libc::SYS_epoll_pwait2 if argument(3) == 0 => Wait::Endless,
            libc::SYS_rt_sigtimedwait if argument(2) == 0 => Wait::Endless,
            libc::SYS_io_getevents if argument(4) == 0 => Wait::Endless,
            libc::SYS_semtimedop
            | libc::SYS_epoll_pwait2
            | libc::SYS_rt_sigtimedwait
            | libc::SYS_io_getevents => Wait::Brittle(Limit::InMemory),
            libc::SYS_futex => match argument(1) & FUTEX_OPERATION {
                FUTEX_WAIT if argument(3) == 0 => Wait::Endless,
                FUTEX_WAIT => Wait::Timed,
                // Their limit is absolute.
                FUTEX_WAIT_BITSET | FUTEX_LOCK_PI => Wait::Endless,
                _ => Wait::Other,
            },
            libc::SYS_clock_nanosleep if argument(1) & ABSOLUTE != 0 => Wait::Endless,
            libc::SYS_poll
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
            | libc::SYS_restart_syscall => Wait::Timed,
            _ => Wait::Other,
        }
    }

    /// Whether a thread that has just come out of it may be led elsewhere: malloc makes no such call while its
    /// heap is half changed. (Which file was read is asked apart.)
    pub fn is_outside_malloc(&self) -> bool {
        self.wait() != Wait::Other
            || matches!(
                self.number,
                libc::SYS_epoll_ctl
                    | libc::SYS_connect
                    | libc::SYS_sendmmsg
                    | libc::SYS_recvmmsg
                    | libc::SYS_pread64
                    | libc::SYS_pwrite64
                    | libc::SYS_fsync
                    | libc::SYS_fdatasync
                    | libc::SYS_getpid
                    | libc::SYS_gettid
                    | libc::SYS_sched_yield
                    | libc::SYS_eventfd2
                    | libc::SYS_timerfd_settime
                    | libc::SYS_futex
            )
    }

    /// Whether it may fail with EINTR when its thread is stopped, and may be called again as it is.
    pub fn fails_when_stopped(&self) -> bool {
        // Calls that the kernel restarts fail with a socket's time limit, too.
        self.wait() == Wait::Endless || self.is_brittle()
    }

    /// Whether it always fails with EINTR when its thread is stopped, with a time limit and without one.
    pub fn is_brittle(&self) -> bool {
        matches!(
            self.number,
            libc::SYS_epoll_wait
                | libc::SYS_epoll_pwait
                | libc::SYS_epoll_pwait2
                | libc::SYS_semop
                | libc::SYS_semtimedop
                | libc::SYS_rt_sigtimedwait
                | libc::SYS_io_getevents
        )
    }

    /// The file that it reads from, where it is one for files.
    pub fn file(&self) -> Option<i32> {
        matches!(self.number, libc::SYS_read | libc::SYS_readv | libc::SYS_pread64)
            .then_some(low_half(self.arguments[0]).cast_signed())
    }
}

/// How a call stands whose thread was stopped, by the result that its register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// To stop the thread; the kernel would call it again.
    CallAgain,
    /// To stop the thread; the kernel would go on with the time that is left.
    GoOn,
    /// With EINTR, which may be because of us.
    Interrupted,
    /// It is done, and this is its result.
    Done,
}

/// By the result.
pub fn ended(result: u64) -> Ended {
    match result.cast_signed() {
        result if CALL_AGAIN.contains(&result) => Ended::CallAgain,
        GO_ON_AFTER_RESTART => Ended::GoOn,
        EINTR => Ended::Interrupted,
        _ => Ended::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(number: i64, arguments: [u64; 6]) -> Wait {
        Call { number, arguments }.wait()
    }

    #[test]
    fn a_limit_decides_whether_a_wait_may_be_called_again() {
        let minus_one = u64::from(u32::MAX);
        let with = |number, at: usize, value| {
            let mut arguments = [0; 6];
            arguments[at] = value;
            wait(number, arguments)
        };
        assert_eq!(with(libc::SYS_poll, 2, minus_one), Wait::Endless);
        assert_eq!(with(libc::SYS_poll, 2, 500), Wait::Timed);
        assert_eq!(with(libc::SYS_epoll_wait, 3, minus_one), Wait::Endless);
        let milliseconds = Wait::Brittle(Limit::Milliseconds(3));
        assert_eq!(with(libc::SYS_epoll_wait, 3, 0), milliseconds);
        for (number, at) in [
            (libc::SYS_semtimedop, 3),
            (libc::SYS_epoll_pwait2, 3),
            (libc::SYS_rt_sigtimedwait, 2),
            (libc::SYS_io_getevents, 4),
        ] {
            assert_eq!(with(number, at, 0), Wait::Endless, "{number}");
            let limited = with(number, at, 0x1000);
            assert_eq!(limited, Wait::Brittle(Limit::InMemory), "{number}");
        }
        assert_eq!(with(libc::SYS_clock_nanosleep, 1, 0), Wait::Timed);
        assert_eq!(with(libc::SYS_clock_nanosleep, 1, 1), Wait::Endless);
        assert_eq!(with(libc::SYS_nanosleep, 0, 0), Wait::Timed);
        assert_eq!(with(libc::SYS_restart_syscall, 0, 0), Wait::Timed);
        assert_eq!(with(libc::SYS_select, 4, 0x1000), Wait::Endless);
    }

    #[test]
    fn a_resumed_poll_is_known_by_its_code() {
        let call = |milliseconds: i32| Call {
            number: libc::SYS_restart_syscall,
            arguments: [0, 0, milliseconds as u32 as u64, 0, 0, 0],
        };
        let poll = [0xb8, 7, 0, 0, 0, 0x0f, 0x05];
        assert_eq!(call(-1).resumed(&poll).wait(), Wait::Endless);
        assert_eq!(call(500).resumed(&poll).wait(), Wait::Timed);
        // clock_nanosleep; an unknown way to load the number; no system call.
        for code in
            [[0xb8, 230, 0, 0, 0, 0x0f, 0x05], [0x48, 0xc7, 0xc0, 7, 0, 0x0f, 0x05], [0xb8, 7, 0, 0, 0, 0x0f, 0x0b]]
        {
            assert_eq!(call(-1).resumed(&code), call(-1));
        }
        let other = Call { number: libc::SYS_pause, ..call(-1) };
        assert_eq!(other.resumed(&poll), other);
    }

    #[test]
    fn futexes_are_told_apart_by_operation_and_limit() {
        let futex = |operation, limit| wait(libc::SYS_futex, [0, operation, 0, limit, 0, 0]);
        assert_eq!(futex(128, 0), Wait::Endless);
        assert_eq!(futex(128, 0x1000), Wait::Timed);
        assert_eq!(futex(128 | 256 | 9, 0x1000), Wait::Endless);
        assert_eq!(futex(128 | 1, 0), Wait::Other, "a wake");
    }

    #[test]
    fn what_malloc_itself_calls_is_no_place() {
        for number in [
            libc::SYS_brk,
            libc::SYS_mmap,
            libc::SYS_munmap,
            libc::SYS_mremap,
            libc::SYS_madvise,
            libc::SYS_mprotect,
            libc::SYS_openat,
            libc::SYS_close,
            libc::SYS_getrandom,
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_vfork,
            libc::SYS_execve,
            libc::SYS_rt_sigreturn,
            libc::SYS_rt_sigsuspend,
        ] {
            let call = Call { number, arguments: [0; 6] };
            assert!(!call.is_outside_malloc(), "{number}");
            assert_eq!(call.wait(), Wait::Other, "{number}");
        }
    }

    #[test]
    fn results_tell_how_a_call_ended() {
        let of = |result: i64| ended(result as u64);
        assert_eq!(of(-512), Ended::CallAgain);
        assert_eq!(of(-514), Ended::CallAgain);
        assert_eq!(of(-516), Ended::GoOn);
        assert_eq!(of(-4), Ended::Interrupted);
        assert_eq!(of(-11), Ended::Done);
        assert_eq!(of(0), Ended::Done);
    }
}
