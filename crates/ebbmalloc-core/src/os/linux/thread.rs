//! The purger's thread: a raw `clone` that libc does not know of.
//!
//! pthread_create would end libc's shortcuts for single-threaded programs for good, allocate, and
//! need libc to be there. The price: the thread has a small stack and a thread block of its own,
//! in which no variable of libc means anything, so what it runs must never call libc. All signals
//! stay blocked in it. At most one such thread exists; its memory serves the next one.

use core::sync::atomic::{AtomicU32, Ordering};

use super::arch::{self, nr};
use super::call::call;
use super::{Linux, Os, memory, signal, wait};

/// Stack and thread block together.
const BLOCK_BYTES: usize = 64 * 1024;
/// The thread block, at the end: zeros but for the pointers to itself.
const TLS_BYTES: usize = 8 * 1024;

/// CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
/// CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID.
const CLONE_FLAGS: usize = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x8_0000 | 0x10_0000 | 0x20_0000;

/// What the new thread runs, kept in its thread block.
#[repr(C)]
struct Launch {
    entry: unsafe extern "C" fn(*mut u8),
    argument: *mut u8,
}

impl Linux {
    /// Starts a thread that runs `entry(argument)` and ends when it returns. Its id is in `word` from then on; the kernel
    /// clears that at its end, and wakes one sleeper. False if the kernel gives no thread, or no memory for one.
    ///
    /// # Safety
    /// `entry` never calls into libc, needs no more than 48 KiB of stack, and may run with
    /// `argument` on another thread at any later time. No earlier thread runs, and no other thread starts one. The caller's
    /// signals are blocked.
    pub unsafe fn spawn(
        &'static self,
        word: &'static AtomicU32,
        entry: unsafe extern "C" fn(*mut u8),
        argument: *mut u8,
    ) -> bool {
        // SAFETY: no earlier thread runs and no other thread starts one (fn contract), so the block is ours alone.
        self.purger_block().is_some_and(|block| unsafe {
            let tls = block + BLOCK_BYTES - TLS_BYTES;
            let launch = write_thread_block(tls, Launch { entry, argument });
            let tls_base = tls + arch::tls_base_offset(TLS_BYTES);
            let (word, launch) = (word.as_ptr(), launch.cast());
            let cloned = arch::clone_thread(CLONE_FLAGS, tls, word, tls_base, run, launch);
            if cloned > 0 {
                self.purger_leaving.store(cloned as u32, Ordering::Relaxed);
            }
            cloned > 0
        })
    }

    /// Sleeps while `word`, which the kernel may clear at a thread's end, holds `expected`; may return early.
    pub fn wait_shared(&self, word: &AtomicU32, expected: u32, timeout_ms: Option<u64>) {
        wait::wait_shared(word, expected, timeout_ms);
    }

    /// Wakes all that sleep in [`Linux::wait_shared`].
    pub fn wake_shared(&self, word: &AtomicU32) {
        wait::wake_shared(word);
    }

    /// Calls `work` with all signals blocked.
    pub fn without_signals<R>(&self, work: impl FnOnce() -> R) -> R {
        let mask = signal::set_mask(u64::MAX);
        let result = work();
        signal::set_mask(mask);
        result
    }

    /// The kernel clears the word early in a thread's exit. Until the exit is over unshare would still
    /// find two threads, and two users of the working directory.
    pub fn see_purger_off(&self) {
        /// Some 100 ms, should the program have a new thread of the same id by now.
        const TURNS: usize = 100;
        let tid = self.purger_leaving.load(Ordering::Relaxed);
        if tid == 0 {
            return;
        }
        let process = self.process_id() as usize;
        for turn in 0..TURNS {
            const NO_SIGNAL: usize = 0;
            // SAFETY: asks whether the thread exists.
            if unsafe { call(nr::TGKILL, [process, tid as usize, NO_SIGNAL]) }.is_err() {
                break;
            }
            if turn < 10 {
                self.yield_now();
            } else {
                self.pause();
            }
        }
        let _ = self.purger_leaving.compare_exchange(tid, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// In the purger: gives it a table of descriptors of its own, an empty one, so that a file that it
    /// opens never has the number that the program's next one is expected to have. False where the
    /// kernel cannot (before Linux 5.9): no file may be opened then.
    pub fn leave_descriptors(&self) -> bool {
        const ALL: usize = u32::MAX as usize;
        const CLOSE_RANGE_UNSHARE: usize = 2;
        // SAFETY: the calling thread's table is its own before anything in it is closed.
        unsafe { call(nr::CLOSE_RANGE, [0, ALL, CLOSE_RANGE_UNSHARE]) }.is_ok()
    }

    /// In a child of fork: the thread exists in the parent only. Its memory is free for another.
    pub fn forget_purger(&self) {
        self.purger_leaving.store(0, Ordering::Relaxed);
    }

    /// Address of the stack and thread block, mapped at the first call, with a page below that no
    /// one may touch.
    fn purger_block(&self) -> Option<usize> {
        let known = self.purger_block.load(Ordering::Relaxed);
        if known != 0 {
            return Some(known);
        }
        let guard_bytes = self.page_bytes();
        let mapped = memory::map_anonymous(guard_bytes + BLOCK_BYTES).ok()?;
        // SAFETY: the guard was mapped just now, and the block begins after it. Without the guard,
        // should the kernel refuse it, the stack is as deep.
        let _ = unsafe { memory::protect(mapped, guard_bytes) };
        let block = mapped + guard_bytes;
        self.purger_block.store(block, Ordering::Relaxed);
        Some(block)
    }
}

/// Clears the thread block at `tls` and fills in what compiled code may look for: the pointers to
/// itself that x86-64 code reads at offsets 0 and 16 (a canary of zero lies at 40).
///
/// # Safety
/// The block of [`TLS_BYTES`] at `tls` is writable and no other thread's.
unsafe fn write_thread_block(tls: usize, launch: Launch) -> *mut Launch {
    let base = tls + arch::tls_base_offset(TLS_BYTES);
    let launch_at = (tls + TLS_BYTES - size_of::<Launch>()) as *mut Launch;
    // SAFETY: all writes lie in the block.
    unsafe {
        core::ptr::write_bytes(tls as *mut u8, 0, TLS_BYTES);
        (base as *mut usize).write(base);
        ((base + 16) as *mut usize).write(base);
        launch_at.write(launch);
    }
    launch_at
}

/// The new thread's first function.
///
/// # Safety
/// `launch` points to the [`Launch`] that `spawn` wrote.
unsafe extern "C" fn run(launch: *mut u8) {
    const PR_SET_NAME: usize = 15;
    // SAFETY: the kernel copies at most 16 bytes of a string that ends before.
    let _ = unsafe { call(nr::PRCTL, [PR_SET_NAME, c"ebb-purger".as_ptr() as usize]) };
    // SAFETY: `launch` is what `spawn` wrote (fn contract), and the block stays ours while this thread lives.
    let Launch { entry, argument } = unsafe { launch.cast::<Launch>().read() };
    // SAFETY: vouched for by the caller of `spawn`.
    unsafe { entry(argument) };
}
