//! Bits of `mechanisms`: what of the kernel and of libc the allocator can use in this process, and whom it serves.

/// membarrier works: other threads' caches can be drained.
pub const MEMBARRIER: u64 = 1 << 0;
/// process_madvise works: many runs of pages are returned in one call.
pub const PROCESS_MADVISE: u64 = 1 << 1;
/// A purger thread can be started (it need not run at the moment).
pub const PURGER_THREAD: u64 = 1 << 2;
/// Fork handlers are registered with libc.
pub const FORK_HANDLERS: u64 = 1 << 3;
/// libc tells when a thread ends.
pub const THREAD_EXIT: u64 = 1 << 4;
/// Forks that run no handlers are noticed (MADV_WIPEONFORK).
pub const FORK_MARK: u64 = 1 << 5;
/// CPython's objects come from here: it was found at its start and not forbidden. The user may have chosen another
/// allocator for it (`PYTHONMALLOC`).
pub const CPYTHON: u64 = 1 << 6;

/// All mechanisms with the names under which reports show them.
pub const ALL: [(u64, &str); 7] = [
    (MEMBARRIER, "membarrier"),
    (PROCESS_MADVISE, "process_madvise"),
    (PURGER_THREAD, "purger_thread"),
    (FORK_HANDLERS, "fork_handlers"),
    (THREAD_EXIT, "thread_exit"),
    (FORK_MARK, "fork_mark"),
    (CPYTHON, "cpython"),
];

/// The names of the mechanisms in `bits`.
pub fn names(bits: u64) -> impl Iterator<Item = &'static str> {
    let set = ALL.into_iter().filter(move |(bit, _)| bits & bit != 0);
    set.map(|(_, name)| name)
}
