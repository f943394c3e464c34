//! The kernel itself, by raw system calls: no libc, so it works before libc is relocated, in a
//! child of `vfork`, and in a thread that libc does not know.
//!
//! One [`Linux`] lives in a static for the whole process. What it learns (page size, which
//! mechanisms are refused) it keeps in atomics, each of which may be set by any thread: they only
//! ever move from "unknown" to the one answer that the kernel gives, so relaxed order is enough.
//! This folder is below `base`, so its atomics are core's; loom never sees it.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use super::{Discarded, Headroom, Os, OsError, PageRun, Scarce};
use call::call;

#[cfg(target_endian = "big")]
compile_error!("the argument blocks of this folder are little-endian");

mod arch;
mod barrier;
mod call;
mod cgroup;
mod discard;
mod environment;
mod files;
mod fork_mark;
mod guard;
mod linux;
mod memory;
mod parent;
mod probes;
mod sandbox;
mod scarcity;
mod signal;
mod stalls;
mod startup;
#[cfg(test)]
mod tests;
// What clone returns is a thread's number, or its negative error.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
mod thread;
mod wait;

pub use call::Errno;
pub use files::NewFile;
use linux::UNKNOWN;
pub use linux::{HugePages, Linux};
pub use stalls::Stalls;

impl Linux {
    /// The advice on huge pages for memory that is reserved from now on, for the heap and for metadata.
    pub fn set_huge_pages(&self, heap: HugePages, metadata: HugePages) {
        self.huge_pages.store(heap as u8, Ordering::Relaxed);
        self.huge_metadata.store(metadata as u8, Ordering::Relaxed);
    }

    /// Whether a tracer is attached to a probe.
    pub fn is_traced(&self) -> bool {
        probes::is_traced()
    }

    /// From now on free address space is unmapped, as if it were limited.
    pub fn unmap_what_is_free(&self) {
        self.unmaps.store(true, Ordering::Relaxed);
    }

    /// Kernel's id of the calling thread.
    pub fn gettid(&self) -> u32 {
        // SAFETY: no arguments, no effects.
        u32::try_from(unsafe { call(arch::nr::GETTID, []) }.unwrap_or(0)).unwrap_or(0)
    }

    /// Kernel's id of the process, for names of files; never to detect a fork.
    pub fn process_id(&self) -> u32 {
        // SAFETY: no arguments, no effects.
        u32::try_from(unsafe { call(arch::nr::GETPID, []) }.unwrap_or(0)).unwrap_or(0)
    }

    /// The calling thread's effective user and group, in one word.
    pub fn effective_ids(&self) -> u64 {
        // SAFETY: no arguments, no effects.
        let id = |number| unsafe { call(number, []) }.unwrap_or(0) as u64;
        id(arch::nr::GETEUID) << 32 | id(arch::nr::GETEGID)
    }

    /// Nanoseconds of CPU that the calling thread has used.
    pub fn thread_cpu_ns(&self) -> u64 {
        const CLOCK_THREAD_CPUTIME_ID: usize = 3;
        clock_ns(CLOCK_THREAD_CPUTIME_ID)
    }

    /// Nanoseconds of CPU that all threads of the process have used.
    pub fn process_cpu_ns(&self) -> u64 {
        const CLOCK_PROCESS_CPUTIME_ID: usize = 2;
        clock_ns(CLOCK_PROCESS_CPUTIME_ID)
    }
}

fn clock_ns(clock: usize) -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: `time` is a valid timespec to write to.
    let _ = unsafe { call(arch::nr::CLOCK_GETTIME, [clock, time.as_mut_ptr() as usize]) };
    time[0] * 1_000_000_000 + time[1]
}

/// What the allocator can act upon; all else is an invalid call.
impl From<Errno> for OsError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOMEM | Errno::AGAIN => OsError::OutOfMemory,
            Errno::PERM | Errno::NOSYS | Errno::ACCES => OsError::Refused,
            _ => OsError::Invalid,
        }
    }
}

// SAFETY: `reserve` returns fresh anonymous mappings of the kernel, which only `release` unmaps.
unsafe impl Os for Linux {
    #[inline]
    fn page_bytes(&self) -> usize {
        match self.page_bytes.load(Ordering::Relaxed) {
            0 => self.find_page_bytes(),
            bytes => bytes,
        }
    }

    fn tell_sampled(&self, block: usize, bytes: usize, weighted_bytes: u64) {
        arch::tell_sampled(block, bytes, weighted_bytes);
    }

    fn tell_freed(&self, block: usize) {
        arch::tell_freed(block);
    }

    fn reserve(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, OsError> {
        memory::reserve(bytes, align, !self.is_confined())
    }

    fn settle_huge_pages(&self, start: usize, bytes: usize) {
        memory::settle_huge_pages(self.huge_pages.load(Ordering::Relaxed), start, bytes);
    }

    fn asks_for_huge_pages(&self) -> bool {
        self.huge_pages.load(Ordering::Relaxed) == HugePages::Asked as u8
            && self.page_bytes() == 4096
            && !self.is_confined()
    }

    fn ask_for_huge_pages(&self, start: usize, bytes: usize) -> bool {
        memory::ask_for_huge_pages(start, bytes)
    }

    fn split_huge_page(&self, page: usize) {
        memory::split_huge_page(page, self.page_bytes());
    }

    fn is_resident(&self, page: usize) -> bool {
        memory::is_resident(page)
    }

    fn settle_huge_metadata(&self, start: usize, bytes: usize) {
        memory::settle_huge_pages(self.huge_metadata.load(Ordering::Relaxed), start, bytes);
    }

    unsafe fn commit(&self, start: usize, bytes: usize) -> Result<(), OsError> {
        // SAFETY: `Os` asks its callers for what the function here asks for: a range that `reserve` gave.
        unsafe { memory::commit(start, bytes) }
    }

    unsafe fn release(&self, start: usize, bytes: usize) {
        // SAFETY: `Os` asks its callers for what the function here asks for: a range of ours that no thread uses any
        // more.
        unsafe { memory::release(start, bytes) }
    }

    unsafe fn discard(&self, runs: &[PageRun]) -> Discarded {
        // SAFETY: `Os` asks its callers for what the function here asks for: committed runs that no thread reads again.
        unsafe { discard::discard(&self.vectors, runs) }
    }

    fn guards_ends(&self) -> bool {
        self.may_guard_ends()
    }

    unsafe fn guard(&self, page: usize, undo: bool) -> bool {
        // SAFETY: `Os` asks its callers for what the functions here ask for: a page of ours that no thread uses.
        unsafe {
            match undo {
                false => self.guard_by_advice(page, self.page_bytes()),
                true => self.unguard_by_advice(page, self.page_bytes()),
            }
        }
    }

    unsafe fn move_pages(&self, from: usize, to: usize, bytes: usize) -> Result<(), OsError> {
        // SAFETY: `Os` asks its callers for what the function here asks for: two ranges of ours that no thread uses
        // meanwhile.
        unsafe { memory::move_pages(self, from, to, bytes) }
    }

    fn scarce(&self) -> Scarce {
        self.find_scarce()
    }

    unsafe fn give_up(&self, start: usize, bytes: usize, scarce: Scarce) -> Result<(), OsError> {
        // SAFETY: `Os` asks its callers for what the function here asks for: a range of ours that no thread uses.
        unsafe { scarcity::give_up(start, bytes, scarce) }
    }

    unsafe fn take_back(&self, start: usize, bytes: usize, scarce: Scarce) -> Result<(), OsError> {
        // SAFETY: `Os` asks its callers for what the function here asks for: a range that was given up in the same
        // way.
        unsafe { scarcity::take_back(start, bytes, scarce) }
    }

    fn now_ms(&self) -> u64 {
        const CLOCK_MONOTONIC: usize = 1;
        clock_ns(CLOCK_MONOTONIC) / 1_000_000
    }

    fn membarrier(&self) -> bool {
        barrier::membarrier(&self.barrier)
    }

    fn wait(&self, word: &AtomicU32, expected: u32, timeout_ms: Option<u64>) {
        wait::wait(word, expected, timeout_ms);
    }

    fn wake(&self, word: &AtomicU32, count: u32) {
        wait::wake(word, count);
    }

    fn yield_now(&self) {
        if self.is_confined() {
            return self.pause();
        }
        // SAFETY: no arguments.
        let _ = unsafe { call(arch::nr::SCHED_YIELD, []) };
    }

    fn address_space_limit(&self) -> Option<usize> {
        if !self.is_confined() {
            let limit = scarcity::limit(scarcity::RLIMIT_AS);
            let limit = if limit == scarcity::NO_LIMIT { 0 } else { limit.max(1) };
            self.address_space.store(limit, Ordering::Relaxed);
        }
        let limit = self.address_space.load(Ordering::Relaxed);
        (limit != 0).then_some(limit)
    }

    fn cpus(&self) -> usize {
        // 8192 CPUs, the most that a kernel can be built for on x86-64.
        let mut mask = [0u64; 128];
        let at = mask.as_mut_ptr() as usize;
        // SAFETY: `mask` has as many bytes as we say.
        let written = unsafe { call(arch::nr::SCHED_GETAFFINITY, [0, size_of_val(&mask), at]) };
        let set: u32 = mask.iter().map(|word| word.count_ones()).sum();
        let affinity = if written.is_ok() { (set as usize).max(1) } else { 1 };
        if affinity == 1 || self.is_confined() {
            return affinity;
        }
        self.cgroup_processors().map_or(affinity, |quota| quota.clamp(1, affinity))
    }

    fn processor(&self) -> usize {
        let mut processor = 0u32;
        // SAFETY: `processor` is valid to write to.
        let _ = unsafe { call(arch::nr::GETCPU, [&raw mut processor as usize, 0, 0]) };
        processor as usize
    }

    fn headroom(&self) -> Option<Headroom> {
        if self.is_confined() {
            return None;
        }
        self.cgroup_headroom()
    }

    fn write_stderr(&self, text: &[u8]) {
        const STDERR: usize = 2;
        // The purger may have descriptors of its own: the program's are found by their names.
        const WRITE_AT_END: usize = 0o1 | 0o2000 | 0o4000 | startup::O_CLOEXEC;
        if !self.write_descriptor(STDERR, text)
            && let Ok(file) = startup::open(c"/proc/self/fd/2", WRITE_AT_END, 0)
        {
            self.write_descriptor(file, text);
            startup::close(file);
        }
    }

    fn abort(&self) -> ! {
        signal::abort(self.process_id(), self.gettid())
    }
}
