//! What a request meets: alloc, free, realloc, usable size; and a tick of the purger.

mod aligned;
pub mod contents;
pub mod explicit;
mod explicit_cache_table;
pub mod explicit_caches;
pub mod explicit_life;
pub mod figures;
mod fork;
pub mod gate;
pub mod guarded;
pub mod heap;
pub mod in_place;
#[cfg(not(loom))]
mod layout;
pub mod limit;
pub mod outside;
mod parts;
pub mod pressure;
pub mod request;
pub mod return_block;
mod sampled;
pub mod statistics;
pub mod tick;
pub mod utilization;

use crate::arena::Arena;
use crate::base::exact::u8_of;
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::base::sync::{AtomicBool, initialiser};
use crate::cache::bins::{Bins, SHARDS};
use crate::cache::cache::{Cache, Entered};
use crate::cache::registry::Registry;
use crate::os::Os;
use crate::profile::Profile;
use crate::size::{CLASSES, SMALL_MAX, class_of};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use explicit_cache_table::ExplicitCaches;
use gate::Gate;
use guarded::Guarded;
use heap::Counters;
pub use heap::{Access, HeapWith};
use outside::Outside;
use pressure::Pressure;

/// An allocator instance.
pub type Heap<O> = HeapWith<O, HeapParts>;

/// What a heap has besides its arena.
pub struct HeapParts {
    bins: Bins,
    caches: Registry,
    outside: Outside,
    /// Sampled guards.
    pub guarded: Guarded,
    /// What keeps other threads out during a fork.
    pub gate: Gate,
    explicit_caches: ExplicitCaches,
    /// The heap profile.
    pub profile: Profile,
    /// Blocks freed by signal handlers that found the locks taken; linked through their first words,
    /// since they are not free yet. Pushed by compare-and-swap with release, taken whole with
    /// acquire.
    pending: AtomicPtr<Pending>,
    /// One count of free pages at a time. Acquire on setting it pairs with release on clearing it.
    counting: AtomicBool,
    /// Settings: how many of the largest classes new caches do not keep. Written at boot; relaxed.
    uncached_classes: AtomicUsize,
    /// Settings: blocks from this size on are returned when they are freed; 0 for none. Written at boot; relaxed.
    oversize: AtomicUsize,
    /// Settings: a cache's shard is that of the processor its thread begins on. Written at boot; relaxed.
    by_processor: core::sync::atomic::AtomicBool,
    pressure: Pressure,
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
        /// A heap without memory: all zero, so that a static one takes no room in the file.
        pub fn new(os: O) -> Self {
            Self {
                os,
                arena: Arena::new(),
                metadata: Metadata::new(),
                passes: AtomicU32::new(0),
                purging: AtomicBool::new(false),
                shards: AtomicUsize::new(0),
                aligned_shard: AtomicU8::new(0),
                keeps_own: AtomicBool::new(false),
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
                parts: HeapParts {
                    bins: Bins::new(),
                    caches: Registry::new(),
                    outside: Outside::new(),
                    guarded: Guarded::new(),
                    gate: Gate::new(),
                    explicit_caches: ExplicitCaches::new(),
                    profile: Profile::new(),
                    pending: AtomicPtr::new(null_mut()),
                    counting: AtomicBool::new(false),
                    uncached_classes: AtomicUsize::new(0),
                    oversize: AtomicUsize::new(0),
                    by_processor: core::sync::atomic::AtomicBool::new(false),
                    pressure: Pressure::new(),
                },
            }
        }
    }

    /// Makes every thread's next request of each class one that its cache does not serve at once, and
    /// what it did not use since the last tick go. `own` as for [`Heap::trim`].
    pub fn mark_caches(&self, own: Option<&Cache>) {
        self.parts.caches.drain(&self.supply(), &self.parts.bins, false, own);
    }

    /// Returns the free extents of the heap's own arena that may be resident, however young. Nothing happens
    /// while a pass is under way; the caller may wait, and is inside no cache.
    pub fn purge_extents(&self) {
        // Acquire and release pair as in `Heap::pass`.
        if !self.arena.has_dirty(&self.os) || self.purging.swap(true, Ordering::Acquire) {
            return;
        }
        let purged = self.arena.purge(&self.os, self.now(), true);
        self.count_purged(&purged);
        self.purging.store(false, Ordering::Release);
    }

    /// Puts back what the calling thread's cache holds.
    pub fn flush(&self, access: Access) {
        if let Access::Cached(cache) = access {
            // SAFETY: the access says that the cache is entered.
            unsafe { cache.drain(&self.supply(), &self.parts.bins, true) };
        }
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

    /// Makes a cache for the calling thread, or takes one that another left.
    pub fn attach(&self) -> Option<NonNull<Cache>> {
        // The first thread gets the first shard, however many there are: most programs have no other,
        // and need not ask the kernel.
        let by_processor = self.parts.by_processor.load(Ordering::Relaxed);
        let processor = by_processor.then(|| self.os.processor());
        let supply = self.supply();
        let cache = match self.parts.caches.take_left() {
            Some(left) => {
                if let Some(processor) = processor {
                    let shard = processor % self.shards_of_threads().clamp(1, SHARDS);
                    // SAFETY: the cache is the calling thread's. It may hold slots of another shard, as any may.
                    unsafe { left.as_ref().settle(u8_of(shard), 0) };
                }
                left
            }
            None => {
                let shards = match self.parts.caches.count(&self.os) {
                    0 if !by_processor => 1,
                    _ => self.shards_of_threads(),
                };
                self.parts.caches.attach(&supply, shards, processor)?
            }
        };
        let most = CLASSES - self.parts.uncached_classes.load(Ordering::Relaxed);
        if most < CLASSES {
            // SAFETY: made just now for this thread, which has entered no cache; no other thread seizes it while
            // it is entered.
            unsafe {
                if cache.as_ref().enter() == Entered::Mine {
                    cache.as_ref().limit(&supply, &self.parts.bins, most);
                    cache.as_ref().leave();
                }
            }
        }
        Some(cache)
    }

    /// Settings: new caches keep slots of up to `bytes`, or none for 0.
    pub fn limit_caches(&self, bytes: usize) {
        let uncached = CLASSES - classes_up_to(bytes);
        self.parts.uncached_classes.store(uncached, Ordering::Relaxed);
    }

    /// Settings: blocks of `bytes` and more are returned to the kernel when they are freed; 0 for none.
    pub fn return_at_once(&self, bytes: usize) {
        self.parts.oversize.store(bytes, Ordering::Relaxed);
    }

    /// Settings: the shard of a new cache is that of the processor that its thread is on.
    pub fn choose_shards_by_processor(&self) {
        self.parts.by_processor.store(true, Ordering::Relaxed);
    }

    /// Lets the calling thread's cache keep slots of up to `bytes`, or none for 0.
    ///
    /// # Safety
    /// The calling thread has entered `own`.
    pub unsafe fn limit_cache(&self, own: &Cache, bytes: usize) {
        // SAFETY: the calling thread has entered `own` (fn contract).
        unsafe { own.limit(&self.supply(), &self.parts.bins, classes_up_to(bytes)) }
    }

    /// Unmakes the calling thread's cache; what it holds is returned to the bins.
    ///
    /// # Safety
    /// `cache` came from [`Heap::attach`] on this thread, which does not use it again.
    pub unsafe fn detach(&self, cache: NonNull<Cache>) {
        // SAFETY: the cache is this thread's, which does not use it again (fn contract).
        unsafe {
            self.leave_home(cache);
            self.parts.caches.detach(&self.supply(), &self.parts.bins, cache);
        }
    }

    /// The same at the end of a thread: the next one may get the cache as it is.
    ///
    /// # Safety
    /// As for [`Heap::detach`].
    pub unsafe fn leave(&self, cache: NonNull<Cache>) {
        // SAFETY: the cache is this thread's, which does not use it again (fn contract).
        unsafe {
            self.leave_home(cache);
            self.parts.caches.leave(&self.supply(), &self.parts.bins, cache);
        }
    }

    /// Counts a thread less on the explicit arena that its cache is on.
    unsafe fn leave_home(&self, cache: NonNull<Cache>) {
        // SAFETY: the cache is the calling thread's (contract of `detach`).
        let cache = unsafe { cache.as_ref() };
        if let Some(arena) = self.home(Access::Around(cache))
            && !cache.is_explicit()
        {
            arena.count_threads(-1);
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

    fn used_bins(&self) -> impl Iterator<Item = &crate::slab::bin::Bin> {
        self.parts.bins.shards[..self.shards()].iter().flatten().map(|bin| &bin.0)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
