//! What a request meets: alloc, free, realloc, usable size; and a tick of the purger.
//!
//! A heap knows no threads: each call says in which [`Access`] its thread is.

pub mod contents;
pub mod explicit;
mod explicit_cache_table;
pub mod explicit_caches;
pub mod explicit_life;
pub mod figures;
mod fork;
pub mod gate;
pub mod in_place;
#[cfg(not(loom))]
mod layout;
pub mod limit;
pub mod outside;
pub mod pressure;
pub mod request;
pub mod return_block;
mod sampled;
pub mod statistics;
pub mod tick;
pub mod utilization;

use crate::arena::Arena;
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::base::sync::{AtomicBool, initialiser};
use crate::cache::bins::{Bins, SHARDS};
use crate::cache::cache::{Cache, Entered};
use crate::cache::registry::Registry;
use crate::os::Os;
use crate::profile::Profile;
use crate::size::{CLASSES, LEAD_MAX, QUANTUM, SMALL_MAX, class_aligned, class_of};
use crate::slab::bin::Supply;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use explicit_cache_table::ExplicitCaches;
use gate::Gate;
use outside::Outside;
use pressure::Pressure;

/// How a call may touch the heap.
#[derive(Clone, Copy)]
pub enum Access<'a> {
    /// The thread has entered its cache.
    Cached(&'a Cache),
    /// Without a cache: the thread has none.
    Direct,
    /// Without the thread's cache, which the purger has, or which is not wanted: it still says which
    /// arena the thread is on.
    Around(&'a Cache),
    /// A signal handler inside an operation of its own thread: no lock may be waited for.
    Nested,
    /// A fork has closed the heap for long: nothing in it is touched. New blocks are mappings of their own, and what is
    /// freed is freed later.
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

    /// Whether locks may be waited for.
    fn wait(self) -> Wait {
        if self.may_wait() { Wait::Yes } else { Wait::No }
    }

    fn may_wait(self) -> bool {
        !matches!(self, Access::Nested | Access::Outside)
    }
}

/// Where the clock starts: a stamp may lie a few ticks before it.
const FIRST_TICK: u32 = 16;

/// An allocator instance.
pub struct Heap<O> {
    /// The kernel.
    pub os: O,
    arena: Arena,
    metadata: Metadata,
    bins: Bins,
    caches: Registry,
    outside: Outside,
    /// See there.
    pub gate: Gate,
    explicit_caches: ExplicitCaches,
    /// The heap profile.
    pub profile: Profile,
    /// Blocks freed by signal handlers that found the locks taken; linked through their first words,
    /// since they are not free yet. Pushed by compare-and-swap with release, taken whole with
    /// acquire.
    pending: AtomicPtr<Pending>,
    /// The purger's clock. Written by the purger alone; a stamp may be one tick old.
    tick: AtomicU32,
    /// One pass of the purger, or of trim, at a time; a fork waits for its end. Acquire on setting it
    /// pairs with release on clearing it (loom: `fork_against_pass`).
    purging: AtomicBool,
    /// One count of free pages at a time. Acquire and release as above.
    counting: AtomicBool,
    shards: AtomicUsize,
    /// Settings: the largest class that new caches keep. Written at boot; relaxed.
    cached_classes: AtomicUsize,
    /// Settings: blocks from this size on are returned when they are freed. As above.
    oversize: AtomicUsize,
    /// Settings: a cache's shard is that of the processor its thread begins on. As above.
    by_processor: core::sync::atomic::AtomicBool,
    /// New slabs have a lead where their class has one, as [`leads`](crate::size::leads) says. Relaxed.
    leads: AtomicBool,
    /// Ticks leave the heap's own arena alone: what is free there stays. Relaxed.
    keeps_own: AtomicBool,
    pressure: Pressure,
    counters: Counters,
}

/// What only the purger counts; relaxed, read for statistics.
#[derive(Default)]
struct Counters {
    returned_bytes: AtomicU64,
    refused_bytes: AtomicU64,
    discard_calls: AtomicU64,
    ticks: AtomicU64,
    trims: AtomicU64,
    claims: AtomicU64,
    claims_refused: AtomicU64,
    cached_bytes: AtomicUsize,
    free_page_bytes: AtomicUsize,
}

/// The class of the largest slots that are to be kept.
fn classes_up_to(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..SMALL_MAX => class_of(bytes),
        _ => CLASSES,
    }
}

struct Pending {
    next: *mut Pending,
}

impl<O: Os> Heap<O> {
    initialiser! {
        /// A heap without memory.
        pub fn new(os: O) -> Self {
            Self {
                os,
                arena: Arena::new(),
                metadata: Metadata::new(),
                bins: Bins::new(),
                caches: Registry::new(),
                outside: Outside::new(),
                gate: Gate::new(),
                explicit_caches: ExplicitCaches::new(),
                profile: Profile::new(),
                pending: AtomicPtr::new(null_mut()),
                tick: AtomicU32::new(FIRST_TICK),
                purging: AtomicBool::new(false),
                counting: AtomicBool::new(false),
                shards: AtomicUsize::new(0),
                cached_classes: AtomicUsize::new(CLASSES),
                oversize: AtomicUsize::new(usize::MAX),
                by_processor: core::sync::atomic::AtomicBool::new(false),
                leads: AtomicBool::new(false),
                keeps_own: AtomicBool::new(false),
                pressure: Pressure::new(),
                counters: Counters {
                    returned_bytes: AtomicU64::new(0),
                    refused_bytes: AtomicU64::new(0),
                    discard_calls: AtomicU64::new(0),
                    ticks: AtomicU64::new(0),
                    trims: AtomicU64::new(0),
                    claims: AtomicU64::new(0),
                    claims_refused: AtomicU64::new(0),
                    cached_bytes: AtomicUsize::new(0),
                    free_page_bytes: AtomicUsize::new(0),
                },
            }
        }
    }

    fn supply(&self) -> Supply<'_, O> {
        Supply {
            os: &self.os,
            arena: &self.arena,
            metadata: &self.metadata,
            page_shift: self.os.page_bytes().trailing_zeros(),
            tick: self.now(),
            leads: self.leads(),
        }
    }

    fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// New slabs have a lead from now on, where their class has one. While no other thread allocates.
    pub fn lead_slabs(&self) {
        self.leads.store(true, Ordering::Relaxed);
    }

    /// Smallest class whose slots hold `size` bytes and are all aligned to `align` here, as
    /// [`class_aligned`](crate::size::class_aligned).
    pub fn class_aligned(&self, size: usize, align: usize) -> Option<usize> {
        let least = if align > QUANTUM && self.leads() { LEAD_MAX + 1 } else { 0 };
        class_aligned(size.max(least), align)
    }

    fn now(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    /// Shards in use: one for each processor that the process can keep busy, up to [`SHARDS`].
    pub fn shards(&self) -> usize {
        match self.shards.load(Ordering::Relaxed) {
            0 => {
                let shards = self.os.cpus().clamp(1, SHARDS);
                self.shards.store(shards, Ordering::Relaxed);
                shards
            }
            shards => shards,
        }
    }

    /// The same where the kernel must not be asked: only the first may be known.
    fn known_shards(&self) -> usize {
        self.shards.load(Ordering::Relaxed).max(1)
    }

    /// Limits the shards to `shards`, before the first thread attaches.
    pub fn limit_shards(&self, shards: usize) {
        self.shards.store(shards.clamp(1, SHARDS), Ordering::Relaxed);
    }

    /// Ticks leave the heap's own arena alone, or do not; trims do not.
    pub fn keep_own(&self, keep: bool) {
        self.keeps_own.store(keep, Ordering::Relaxed);
    }

    /// Where in a heap the three words of [`Arena::FIRST_VIEW`] are.
    pub const FIRST_VIEW: usize = core::mem::offset_of!(Self, arena) + Arena::FIRST_VIEW;

    /// Class of the slab that `address` lies in, 0 for a large block; `None` outside the first region.
    #[inline(always)]
    pub fn quick_class(&self, address: usize) -> Option<usize> {
        self.arena.class_in_first_region(address)
    }

    /// Makes a cache for the calling thread.
    pub fn attach(&self) -> Option<NonNull<Cache>> {
        // The first thread gets the first shard, however many there are: most programs have no other,
        // and need not ask the kernel.
        let by_processor = self.by_processor.load(Ordering::Relaxed);
        let shards = match self.caches.count(&self.os) {
            0 if !by_processor => 1,
            _ => self.shards(),
        };
        let processor = by_processor.then(|| self.os.processor());
        let supply = self.supply();
        let cache = self.caches.attach(&supply, shards, processor)?;
        let most = self.cached_classes.load(Ordering::Relaxed);
        if most < CLASSES {
            // SAFETY: made just now for this thread, which has entered no cache; nobody seizes it while
            // it is entered.
            unsafe {
                if cache.as_ref().enter() == Entered::Mine {
                    cache.as_ref().limit(&supply, &self.bins, most);
                    cache.as_ref().leave();
                }
            }
        }
        Some(cache)
    }

    /// Settings: new caches keep slots of up to `bytes`, or none for 0.
    pub fn limit_caches(&self, bytes: usize) {
        self.cached_classes.store(classes_up_to(bytes), Ordering::Relaxed);
    }

    /// Settings: blocks of `bytes` and more are returned to the kernel when they are freed; 0 for none.
    pub fn return_at_once(&self, bytes: usize) {
        let from = if bytes == 0 { usize::MAX } else { bytes };
        self.oversize.store(from, Ordering::Relaxed);
    }

    /// Settings: the shard of a new cache is that of the processor that its thread is on.
    pub fn choose_shards_by_processor(&self) {
        self.by_processor.store(true, Ordering::Relaxed);
    }

    /// Lets the calling thread's cache keep slots of up to `bytes`, or none for 0.
    ///
    /// # Safety
    /// The calling thread has entered `own`.
    pub unsafe fn limit_cache(&self, own: &Cache, bytes: usize) {
        // SAFETY: the calling thread has entered `own` (fn contract).
        unsafe { own.limit(&self.supply(), &self.bins, classes_up_to(bytes)) }
    }

    /// Unmakes the calling thread's cache; what it holds goes back to the bins.
    ///
    /// # Safety
    /// `cache` came from [`Heap::attach`] on this thread, which does not use it again.
    pub unsafe fn detach(&self, cache: NonNull<Cache>) {
        // SAFETY: the cache is this thread's, which does not use it again (fn contract).
        unsafe {
            if let Some(arena) = self.home(Access::Around(cache.as_ref()))
                && !cache.as_ref().is_explicit()
            {
                arena.count_threads(-1);
            }
            self.caches.detach(&self.supply(), &self.bins, cache);
        }
    }

    /// A piece of metadata memory, as [`Metadata::allocate`] says; for a caller that may wait.
    pub fn allocate_metadata(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.metadata.allocate(&self.os, bytes, Wait::Yes)
    }

    /// Takes a piece back.
    ///
    /// # Safety
    /// It came from [`Heap::allocate_metadata`] with as many bytes, and is not used any more.
    pub unsafe fn free_metadata(&self, piece: NonNull<u8>, bytes: usize) {
        // SAFETY: the piece came from there with as many bytes, and is not used any more (fn contract).
        unsafe { self.metadata.free(&self.os, piece, bytes, false) }
    }

    /// Bytes freed since the last tick.
    pub fn freed_bytes(&self) -> usize {
        self.arena.freed_bytes()
    }

    /// The bins of the shards in use.
    fn used_bins(&self) -> impl Iterator<Item = &crate::slab::bin::Bin> {
        self.bins.shards[..self.shards()].iter().flatten().map(|bin| &bin.0)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
