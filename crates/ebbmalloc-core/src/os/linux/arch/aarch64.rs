//! AArch64: system calls by `svc 0`, a thread's TLS base in `tpidr_el0`.

use core::arch::asm;

/// System call numbers (include/uapi/asm-generic/unistd.h).
#[allow(missing_docs)]
pub mod nr {
    pub const UNLINKAT: usize = 35;
    pub const FTRUNCATE: usize = 46;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const READ: usize = 63;
    pub const PREAD64: usize = 67;
    pub const WRITE: usize = 64;
    pub const READLINKAT: usize = 78;
    pub const EXIT: usize = 93;
    pub const EXIT_GROUP: usize = 94;
    pub const UNSHARE: usize = 97;
    pub const FUTEX: usize = 98;
    pub const CLOCK_GETTIME: usize = 113;
    pub const SCHED_GETAFFINITY: usize = 123;
    pub const SCHED_YIELD: usize = 124;
    pub const TGKILL: usize = 131;
    pub const RT_SIGACTION: usize = 134;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const PRCTL: usize = 167;
    pub const GETCPU: usize = 168;
    pub const GETPID: usize = 172;
    pub const GETPPID: usize = 173;
    pub const GETUID: usize = 174;
    pub const GETEUID: usize = 175;
    pub const GETGID: usize = 176;
    pub const GETEGID: usize = 177;
    pub const GETTID: usize = 178;
    pub const MUNMAP: usize = 215;
    pub const MREMAP: usize = 216;
    pub const CLONE: usize = 220;
    pub const MMAP: usize = 222;
    pub const MPROTECT: usize = 226;
    pub const MINCORE: usize = 232;
    pub const MADVISE: usize = 233;
    pub const PRLIMIT64: usize = 261;
    pub const SETNS: usize = 268;
    pub const MEMBARRIER: usize = 283;
    pub const CLOSE_RANGE: usize = 436;
    pub const PROCESS_MADVISE: usize = 440;
}

/// Where in a thread's TLS block of `bytes` bytes the TLS register points: the variables lie above that address
/// (variant I), libc's thread descriptor below.
pub const fn tls_base_offset(bytes: usize) -> usize {
    bytes / 2
}

/// Issues system call `number`; the result is the kernel's, with errors as -errno.
///
/// # Safety
/// The caller upholds what the system call demands of its arguments.
#[inline]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel preserves all registers but x0. It changes only the memory that the arguments name, which the
    // caller allows (fn contract).
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    result
}

/// Starts a thread by the `clone` system call: it runs `entry(argument)` on `stack_top`, then
/// ends; it never returns. The result is the kernel's: the thread's id, or -errno.
///
/// # Safety
/// `stack_top` is the 16-byte-aligned end of a stack that no other thread uses while the thread lives;
/// `tid` is valid for as long; `flags` hold CLONE_VM and CLONE_THREAD; all signals are blocked.
pub unsafe fn clone_thread(
    flags: usize,
    stack_top: usize,
    tid: *mut u32,
    tls: usize,
    entry: unsafe extern "C" fn(*mut u8),
    argument: *mut u8,
) -> isize {
    let result: isize;
    // SAFETY: the parent comes back with x0 changed only; the child starts after `svc` with x0 = 0
    // on its own stack and never reaches the code after.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr", // ends the chain of frames for debuggers
            "mov x30, xzr",
            "mov x0, x10",
            "blr x9",
            "mov x0, xzr",
            "mov x8, {exit}",
            "svc 0",
            "brk 1",
            "2:",
            exit = const nr::EXIT,
            in("x8") nr::CLONE,
            inlateout("x0") flags => result,
            in("x1") stack_top,
            in("x2") tid,
            in("x3") tls,
            in("x4") tid,
            in("x9") entry,
            in("x10") argument,
            options(nostack),
        );
    }
    result
}

/// The probe of a block that was sampled: its address, its bytes, and the bytes that it stands for.
#[inline(never)]
pub fn tell_sampled(block: usize, bytes: usize, weighted_bytes: u64) {
    probe!("alloc", "8@x0 8@x1 8@x2", in("x0") block, in("x1") bytes, in("x2") weighted_bytes,);
}

/// The probe of such a block that is freed.
#[inline(never)]
pub fn tell_freed(block: usize) {
    probe!("free", "8@x0", in("x0") block,);
}
