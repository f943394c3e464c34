//! A heap: the data of requests and ticks. It knows no threads: each call passes the [`Access`] that its thread has.
//!
//! Parts that requests and ticks need only sometimes are called through the trait [`Parts`]: the caches of all threads,
//! explicit arenas, samples, blocks outside of the arena. `parts.rs` implements it for the real allocator.

use crate::arena::Arena;
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::base::purged::{Drained, Purged};
use crate::base::sync::AtomicBool;
use crate::cache::cache::Cache;
use crate::os::Os;
use crate::slab::bin::{Bin, Supply};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// How a call may touch the heap.
#[derive(Clone, Copy)]
pub enum Access<'a> {
    /// The thread has entered its cache.
    Cached(&'a Cache),
    /// Without a cache: the thread has none.
    Direct,
    /// Without the thread's cache, because the purger has it or the request must not use it. The cache still says which
    /// arena the thread is on.
    Around(&'a Cache),
    /// A signal handler inside an operation of its own thread: no lock may be waited for.
    Nested,
    /// A fork has closed the heap for long, and nothing in it may be touched. New blocks are mappings of their own, and frees
    /// are postponed.
    Outside,
}

impl<'a> Access<'a> {
    /// The same around the thread's cache.
    pub fn without_cache(self) -> Access<'a> {
        match self {
            Access::Cached(cache) => Access::Around(cache),
            other => other,
        }
    }

    /// The thread's own cache, if it has entered it.
    pub(super) fn own(self) -> Option<&'a Cache> {
        if let Access::Cached(cache) = self { Some(cache) } else { None }
    }

    /// Whether locks may be waited for.
    pub(super) fn wait(self) -> Wait {
        if self.may_wait() { Wait::Yes } else { Wait::No }
    }

    pub(super) fn may_wait(self) -> bool {
        !matches!(self, Access::Nested | Access::Outside)
    }
}

/// Where the clock starts: a stamp may lie a few ticks before it.
pub(super) const FIRST_TICK: u32 = 16;

/// An allocator instance.
pub struct HeapWith<O, P> {
    /// The kernel.
    pub os: O,
    pub(super) arena: Arena,
    pub(super) metadata: Metadata,
    /// Passes of the purger's clock. Written by the purger alone; a stamp may be one tick old.
    pub(super) passes: AtomicU32,
    /// One pass of the purger, or of trim, at a time; a fork waits for its end. Acquire on setting it
    /// pairs with release on clearing it (loom: `fork_against_pass`).
    pub(super) purging: AtomicBool,
    /// Shards in use, 0 until that was asked. Relaxed.
    pub(super) shards: AtomicUsize,
    /// 0, or the shard whose slabs have no lead (`aligned.rs`). Written while there is one thread; relaxed.
    pub(super) aligned_shard: AtomicU8,
    /// Ticks leave the heap's own arena alone: free memory there stays. Relaxed.
    pub(super) keeps_own: AtomicBool,
    pub(super) counters: Counters,
    /// See the module.
    pub parts: P,
}

/// What only the purger counts; relaxed, read for statistics.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) returned_bytes: AtomicU64,
    pub(super) refused_bytes: AtomicU64,
    pub(super) discard_calls: AtomicU64,
    pub(super) ticks: AtomicU64,
    pub(super) trims: AtomicU64,
    pub(super) claims: AtomicU64,
    pub(super) claims_refused: AtomicU64,
    pub(super) cached_bytes: AtomicUsize,
    pub(super) free_page_bytes: AtomicUsize,
}

/// The parts of a heap that its requests and ticks use only through these functions.
pub trait Parts<O: Os>: Sized {
    /// Shards at most.
    const SHARDS: usize;

    /// The bin of a class in a shard.
    fn bin(&self, shard: usize, class: usize) -> &Bin;

    /// Takes a slot of `class` from a cache, which is filled from the bins where it is empty. Null if there is no memory.
    ///
    /// # Safety
    /// The caller has entered the cache.
    unsafe fn pop_or_refill(&self, supply: &Supply<O>, cache: &Cache, class: usize) -> *mut u8;

    /// A slot from the explicit arena that the thread is on; `None` if it is on none.
    fn slot_at_home(heap: &HeapWith<O, Self>, access: Access, class: usize) -> Option<*mut u8>;

    /// A large block from there, and whether it is known to read as zero; `None` if the thread is on no explicit arena.
    fn large_at_home(heap: &HeapWith<O, Self>, access: Access, size: usize, align: usize) -> Option<(*mut u8, bool)>;

    /// A mapping of its own for a block; null if there is no memory.
    fn allocate_outside(&self, os: &O, size: usize, align: usize) -> *mut u8;

    /// Frees what signal handlers postponed, if the caller may wait.
    fn free_pending(heap: &HeapWith<O, Self>, access: Access);

    /// Puts back what the caches have not used since the last tick, or with `all` everything. `own` is the calling
    /// thread's cache, if it has entered it; `asked`: by the program, not by the clock.
    fn drain(heap: &HeapWith<O, Self>, all: bool, asked: bool, own: Option<&Cache>) -> Drained;

    /// One pass over the explicit arenas.
    fn purge_explicit(heap: &HeapWith<O, Self>, all: bool, asked: bool) -> Purged;

    /// Gives up what explicit arenas have free, if something is scarce; how many bytes.
    fn give_up_explicit(heap: &HeapWith<O, Self>) -> usize;

    /// Whether the limit was near at the last look. If so, idle pages are returned at once.
    fn is_near_limit(heap: &HeapWith<O, Self>) -> bool;

    /// Bytes of resident pages inside slabs that hold nothing live or cached; `None` if others count.
    fn count_free_pages(heap: &HeapWith<O, Self>) -> Option<usize>;
}

impl<O: Os, P: Parts<O>> HeapWith<O, P> {
    pub(super) fn supply(&self) -> Supply<'_, O> {
        Supply {
            os: &self.os,
            arena: &self.arena,
            metadata: &self.metadata,
            page_shift: self.os.page_bytes().trailing_zeros(),
            tick: self.now(),
            aligned_shard: self.aligned_shard(),
        }
    }

    pub(super) fn now(&self) -> u32 {
        self.passes.load(Ordering::Relaxed).wrapping_add(FIRST_TICK)
    }

    /// Shards in use: one for each processor that the process can keep busy, up to [`Parts::SHARDS`].
    pub fn shards(&self) -> usize {
        match self.shards.load(Ordering::Relaxed) {
            0 => {
                let shards = self.os.cpus().clamp(1, P::SHARDS);
                self.shards.store(shards, Ordering::Relaxed);
                shards
            }
            shards => shards,
        }
    }

    /// The same where the kernel must not be asked: only the first may be known.
    pub(super) fn known_shards(&self) -> usize {
        self.shards.load(Ordering::Relaxed).max(1)
    }

    pub(super) fn count_purged(&self, purged: &Purged) {
        let counters = &self.counters;
        counters.returned_bytes.fetch_add(purged.returned_bytes as u64, Ordering::Relaxed);
        counters.refused_bytes.fetch_add(purged.refused_bytes as u64, Ordering::Relaxed);
        counters.discard_calls.fetch_add(purged.calls as u64, Ordering::Relaxed);
    }
}
