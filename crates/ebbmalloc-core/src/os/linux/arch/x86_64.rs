//! x86-64: system calls by `syscall`, a thread's TLS base in `fs`.

use core::arch::asm;

/// System call numbers (arch/x86/entry/syscalls/syscall_64.tbl).
#[allow(missing_docs)]
pub mod nr {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const SCHED_YIELD: usize = 24;
    pub const MREMAP: usize = 25;
    pub const PREAD64: usize = 17;
    pub const MINCORE: usize = 27;
    pub const MADVISE: usize = 28;
    pub const GETPID: usize = 39;
    pub const CLONE: usize = 56;
    pub const EXIT: usize = 60;
    pub const FTRUNCATE: usize = 77;
    pub const GETUID: usize = 102;
    pub const GETGID: usize = 104;
    pub const GETEUID: usize = 107;
    pub const GETEGID: usize = 108;
    pub const GETPPID: usize = 110;
    pub const PRCTL: usize = 157;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const SCHED_GETAFFINITY: usize = 204;
    pub const CLOCK_GETTIME: usize = 228;
    pub const EXIT_GROUP: usize = 231;
    pub const TGKILL: usize = 234;
    pub const OPENAT: usize = 257;
    pub const UNLINKAT: usize = 263;
    pub const READLINKAT: usize = 267;
    pub const UNSHARE: usize = 272;
    pub const PRLIMIT64: usize = 302;
    pub const SETNS: usize = 308;
    pub const GETCPU: usize = 309;
    pub const MEMBARRIER: usize = 324;
    pub const CLOSE_RANGE: usize = 436;
    pub const PROCESS_MADVISE: usize = 440;
}

/// Offset of the address that the TLS register holds within a thread's TLS block of `bytes` bytes:
/// variables lie below it (variant II), the thread control block above.
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
    // SAFETY: the kernel preserves all registers but rax, rcx and r11, which are declared; memory
    // effects are the ones that the caller vouches for.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number.cast_signed() => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Starts a thread by the `clone` system call: it runs `entry(argument)` on `stack_top`, then
/// exits without returning to anybody. The result is the kernel's: its id, or -errno.
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
    // SAFETY: the parent comes back with the registers that `syscall` declares changed; the child
    // starts after `syscall` with rax = 0 on its own stack and never reaches the code after.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp", // ends the chain of frames for debuggers
            "mov rdi, r13",
            "call r12",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            exit = const nr::EXIT,
            inlateout("rax") nr::CLONE.cast_signed() => result,
            in("rdi") flags,
            in("rsi") stack_top,
            in("rdx") tid,
            in("r10") tid,
            in("r8") tls,
            in("r12") entry,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The probe of a block that was sampled: its address, its bytes, and the bytes that it stands for.
#[inline(never)]
pub fn tell_sampled(block: usize, bytes: usize, weighted_bytes: u64) {
    probe!("alloc", "8@%rdi 8@%rsi 8@%rdx", in("rdi") block, in("rsi") bytes, in("rdx") weighted_bytes,);
}

/// The probe of such a block that is freed.
#[inline(never)]
pub fn tell_freed(block: usize) {
    probe!("free", "8@%rdi", in("rdi") block,);
}
