//! The only door to the kernel: a contract, and the implementations after it.
//!
//! Nothing above this folder issues a system call. [`Os`] is what the allocator needs of a kernel;
//! `linux` answers it with raw system calls (no libc, so it works before libc is relocated), `fake`
//! with ordinary memory, a manual clock and scripted failures, for tests.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

#[cfg(any(test, feature = "fake-os", loom))]
pub mod fake;
pub mod hooks;
#[cfg(all(target_os = "linux", not(loom)))]
pub mod linux;

/// A run of whole pages: start address and length, both multiples of the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// Address of the first byte.
    pub start: usize,
    /// Length in bytes.
    pub bytes: usize,
}

/// Why the kernel refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OsError {
    /// ENOMEM: no address space, no commit charge, or too many mappings.
    OutOfMemory,
    /// EPERM, ENOSYS, EACCES: refused by a filter, a policy or an old kernel.
    Refused,
    /// EINVAL and the rest: for `discard`, pages that are locked in memory.
    Invalid,
}

/// The least that is reserved at a time: what no page is larger than.
const REGION_UNIT: usize = 64 << 10;

/// What became of a call to [`Os::discard`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    /// Bytes that are no longer resident; they read as zero when touched again.
    pub returned_bytes: usize,
    /// Bytes the kernel would not take (locked pages): still resident, contents unchanged.
    pub refused_bytes: usize,
}

/// Address space for blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Address of the first byte.
    pub start: usize,
    /// Its pages read as zero and are not resident.
    pub clean: bool,
}

/// What the tightest limit on the process's memory leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// The limit.
    pub limit_bytes: usize,
    /// What can still be used before the kernel kills, or slows the process down.
    pub left_bytes: usize,
}

/// What the process may run out of although its pages were returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scarce {
    /// Nothing: no limit.
    #[default]
    Nothing,
    /// Memory that may be written (RLIMIT_DATA, vm.overcommit_memory=2): inaccessible address space is
    /// not counted.
    Charge,
    /// Address space (RLIMIT_AS): only what is unmapped is not counted.
    Addresses,
}

/// The kernel, as the allocator sees it. All methods are async-signal-safe and never allocate.
///
/// # Safety
/// An implementation returns only memory that no other thread uses, and memory that it has returned
/// from [`Os::reserve`] stays reserved until [`Os::release`].
pub unsafe trait Os: Sync {
    /// Size of a page in bytes, read at run time: 4, 16 or 64 KiB.
    fn page_bytes(&self) -> usize;

    /// Reserves `bytes` of address space aligned to `align` (both multiples of 64 KiB), inaccessible
    /// and uncharged until [`Os::commit`].
    fn reserve(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, OsError>;

    /// [`Os::reserve`] for blocks, not for what is known of them.
    fn reserve_blocks(&self, bytes: usize, align: usize) -> Result<Reserved, OsError> {
        let start = self.reserve(bytes, align)?.as_ptr() as usize;
        self.settle_huge_pages(start, bytes);
        Ok(Reserved { start, clean: true })
    }

    /// How much address space for blocks to reserve at once, after so many `regions`: a multiple of
    /// [`Os::region_unit`]. `None`: as much as there is use for.
    fn region_bytes(&self, _regions: usize) -> Option<usize> {
        None
    }

    /// What is given up of addresses is a multiple of this, and aligned to it; 1 if it does not matter.
    fn given_unit(&self) -> usize {
        1
    }

    /// What is reserved for blocks is a multiple of this.
    fn region_unit(&self) -> usize {
        REGION_UNIT
    }

    /// [`Os::commit`] in what [`Os::reserve_blocks`] gave.
    ///
    /// # Safety
    /// As there.
    unsafe fn commit_blocks(&self, start: usize, bytes: usize) -> Result<(), OsError> {
        // SAFETY: `commit` asks for the same: a range of ours, reserved and not yet committed.
        unsafe { self.commit(start, bytes) }
    }

    /// [`Os::release`] of what [`Os::reserve_blocks`] gave, whole.
    ///
    /// # Safety
    /// As there.
    unsafe fn release_blocks(&self, start: usize, bytes: usize) {
        // SAFETY: `release` asks for the same: a range of ours that no thread uses any more.
        unsafe { self.release(start, bytes) }
    }

    /// Keeps a reserved range of the heap from transparent huge pages, unless the process's settings
    /// leave that to the kernel, or want them. Best effort: a kernel without them knows no such call.
    fn settle_huge_pages(&self, start: usize, bytes: usize);

    /// Whether [`Os::ask_for_huge_pages`] may be called.
    fn asks_for_huge_pages(&self) -> bool {
        false
    }

    /// Asks for huge pages when a range of the heap is first touched, until [`Os::settle_huge_pages`]. False if the
    /// kernel refuses.
    fn ask_for_huge_pages(&self, _start: usize, _bytes: usize) -> bool {
        false
    }

    /// Whether [`Os::guard`] may be called to make pages fault.
    fn guards_ends(&self) -> bool {
        false
    }

    /// Makes a page fault when it is touched, without a split of the mapping, or `undo`es that: then it reads as zero. False
    /// if the kernel refuses.
    ///
    /// # Safety
    /// The page is committed memory of this instance that no thread uses.
    unsafe fn guard(&self, _page: usize, undo: bool) -> bool {
        undo
    }

    /// If `page` lies in a huge page, splits that into small pages. The contents stay.
    fn split_huge_page(&self, _page: usize) {}

    /// Whether this page is resident.
    fn is_resident(&self, _page: usize) -> bool {
        true
    }

    /// [`Os::settle_huge_pages`] for memory of the allocator's own, which has a setting of its own.
    fn settle_huge_metadata(&self, start: usize, bytes: usize);

    /// Makes reserved pages readable and writable; they read as zero.
    ///
    /// # Safety
    /// The range lies in a reservation of this instance.
    unsafe fn commit(&self, start: usize, bytes: usize) -> Result<(), OsError>;

    /// Gives address space back to the kernel, whatever its state.
    ///
    /// # Safety
    /// The range lies in a reservation of this instance, and no thread uses it any more.
    unsafe fn release(&self, start: usize, bytes: usize);

    /// Returns the pages of `runs` to the kernel (MADV_DONTNEED: never MADV_FREE). They stay
    /// mapped and read as zero afterwards. Many runs go in one call where the kernel allows it.
    ///
    /// # Safety
    /// The runs lie in committed memory of this instance and hold nothing that anybody reads again.
    unsafe fn discard(&self, runs: &[PageRun]) -> Discarded;

    /// Moves the pages of `[from, from + bytes)` to `to` without copying (mremap with
    /// MREMAP_DONTUNMAP): `from` stays mapped and reads as zero. On an error nothing has moved.
    ///
    /// # Safety
    /// Both ranges are committed memory of this instance and do not overlap; no other thread uses them.
    unsafe fn move_pages(&self, from: usize, to: usize, bytes: usize) -> Result<(), OsError>;

    /// What is limited now.
    fn scarce(&self) -> Scarce;

    /// Gives committed memory up, so that it does not count against the limit `scarce` any more. With
    /// [`Scarce::Addresses`] others may map there from then on.
    ///
    /// # Safety
    /// The range is committed memory of this instance and no thread uses it.
    unsafe fn give_up(&self, start: usize, bytes: usize, scarce: Scarce) -> Result<(), OsError>;

    /// Undoes [`Os::give_up`] for a part of the range: committed, and reads as zero.
    /// [`OsError::Invalid`] if somebody else has mapped there meanwhile.
    ///
    /// # Safety
    /// The range was given up with the same `scarce`, and was not taken back yet.
    unsafe fn take_back(&self, start: usize, bytes: usize, scarce: Scarce) -> Result<(), OsError>;

    /// Milliseconds of a monotonic clock.
    fn now_ms(&self) -> u64;

    /// Makes every thread of the process pass a full memory barrier
    /// (membarrier PRIVATE_EXPEDITED). False where the kernel refuses it: no claims then.
    fn membarrier(&self) -> bool;

    /// Sleeps while `*word == expected`, at most `timeout_ms`; may wake for no reason.
    fn wait(&self, word: &AtomicU32, expected: u32, timeout_ms: Option<u64>);

    /// Wakes up to `count` threads that sleep on `word`.
    fn wake(&self, word: &AtomicU32, count: u32);

    /// Gives the rest of the time slice away.
    fn yield_now(&self);

    /// RLIMIT_AS in bytes, if one is set.
    fn address_space_limit(&self) -> Option<usize>;

    /// CPUs that this process can keep busy, at least 1: its affinity, and where a quota is worth
    /// fewer, that.
    fn cpus(&self) -> usize;

    /// The processor that the calling thread is on, 0 if that cannot be told.
    fn processor(&self) -> usize {
        0
    }

    /// How near the process is to a limit on the memory of its cgroups; `None` where there is none,
    /// or it cannot be told. Some 20 to 100 microseconds; neither for signal handlers nor under a lock.
    fn headroom(&self) -> Option<Headroom>;

    /// Writes `text` to standard error, best effort.
    fn write_stderr(&self, text: &[u8]);

    /// Tells tracers that a block was sampled, and the bytes that it stands for.
    fn tell_sampled(&self, _block: usize, _bytes: usize, _weighted_bytes: u64) {}

    /// Tells tracers that such a block is freed.
    fn tell_freed(&self, _block: usize) {}

    /// Ends the process with SIGABRT.
    fn abort(&self) -> !;
}
