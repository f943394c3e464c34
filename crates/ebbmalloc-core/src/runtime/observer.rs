//! Observers: the record of an observed thread, which takes the slow path for each of its requests.
//!
//! The fast path counts nothing and checks no setting. For a thread whose requests have to be counted, filled or
//! sampled, or that must not use its cache, the thread's word (`super::thread`) leads to a static cache that is always
//! empty. So each request misses and comes to `super::observed`, which does this work and serves the request from the
//! thread's real cache. Other threads pay nothing.
//!
//! A thread that only the heap profile samples keeps its own cache, in rationed form ([`crate::cache::ration`]). It is
//! sampled, not observed: only requests that its rations cannot serve come here.
//!
//! A thread is observed if all threads are ([`observe_everyone`], a setting), or if it asked for it
//! (`super::thread_control`), and stays so until its end. Its counters start at zero when it becomes observed.

use super::checks::quarantine::{Ring, release};
use super::instance::HEAP;
use super::profile_settings::{is_active, is_on};
use super::sampler::{Sampler, end_thread};
use crate::cache::cache::Cache;
use crate::cache::ration::Rations;
use crate::heap::Access;
use crate::os::Os;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// New blocks are filled with [`JUNK_NEW`].
pub const JUNK_ALLOCATED: u8 = 1;
/// Blocks are filled with [`JUNK_FREED`] when they are freed.
pub const JUNK_DEALLOCATED: u8 = 2;
/// New blocks are filled with zeros.
pub const ZERO: u8 = 4;
/// Nothing is kept in the thread's cache.
pub const NO_CACHE: u8 = 8;
/// The thread's allocations are sampled, as [`super::profile`] says.
pub const PROFILE: u8 = 16;
/// Statistics are printed each time that so many bytes were allocated.
pub const STATS_INTERVAL: u8 = 32;
/// Blocks are tagged and checked: [`super::strict`]. A flag of all threads.
pub const STRICT: u8 = 128;
/// Only the profile samples the thread, and its cache is rationed. A flag of one thread, never of all threads.
const SAMPLED_ALONE: u8 = 64;

/// What new blocks are filled with, and freed ones, as in jemalloc.
pub const JUNK_NEW: u8 = 0xa5;
/// See [`JUNK_NEW`].
pub const JUNK_FREED: u8 = 0x5a;

/// What a thread is observed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    /// Samples for the heap profile.
    Samples,
    /// Each request.
    Requests,
}

/// The flags above for which every thread is observed. Written at boot; relaxed.
static EVERYONE: AtomicU8 = AtomicU8::new(0);

/// The live counters of a thread. Written by the thread alone, read by the thread that has their address.
#[repr(C)]
#[derive(Debug)]
pub struct Counters {
    /// Bytes that the thread allocated since it is observed, each block by its usable size.
    pub allocated: AtomicU64,
    /// Bytes that the thread freed since it is observed, also bytes that other threads allocated.
    pub deallocated: AtomicU64,
}

/// See the module. Atomics because a signal handler of the same thread may come between; written by
/// plain additions, since no other thread writes.
pub struct Observer {
    cache: NonNull<Cache>,
    flags: AtomicU8,
    /// See [`Counters`].
    pub counters: Counters,
    /// Live bytes (allocated less freed, by the counters) when the peak was last reset, and their maximum since then.
    peak_from: AtomicI64,
    peak: AtomicI64,
    pub(super) sampler: Sampler,
    /// Memory of the cache's rations, or null. It stays as long as the record does.
    rations: AtomicPtr<Rations>,
    /// Where the thread's freed blocks wait in strict mode, or null. Memory as that of the rations.
    ring: AtomicPtr<Ring>,
}

/// Threads that were observed in strict mode so far; relaxed: see [`is_alone`].
static STRICT_THREADS: AtomicU32 = AtomicU32::new(0);

/// In strict mode: whether the calling thread is the only one that has asked for memory. A thread that sees what another
/// wrote to a block sees, after its fence, that the other is there: it was counted before its first request.
#[inline]
pub(super) fn is_alone() -> bool {
    fence(Ordering::Acquire);
    STRICT_THREADS.load(Ordering::Relaxed) <= 1
}

impl Observer {
    /// The thread's real cache.
    #[inline(always)]
    pub(super) fn cache(&self) -> &'static Cache {
        // SAFETY: the cache and this record are unmade together, at the thread's end.
        unsafe { self.cache.as_ref() }
    }

    /// What the thread is observed for, besides its counters and the profile: the flags of this module.
    #[inline(always)]
    pub(super) fn flags(&self) -> u8 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Where the thread's freed blocks wait, in strict mode.
    #[inline]
    pub(super) fn ring(&self) -> Option<&Ring> {
        // SAFETY: null, or memory that goes with the record.
        unsafe { self.ring.load(Ordering::Relaxed).as_ref() }
    }

    /// At the thread's end: what waits is free.
    pub(super) fn empty_ring(&self) {
        self.ring().inspect(|ring| {
            ring.take_all(|block| {
                if let Some(memory) = release(block) {
                    // SAFETY: the memory is from the heap, and no block is in it any more.
                    unsafe { HEAP.free(Access::Direct, memory) };
                }
            });
        });
    }

    fn make_ring(&self) -> bool {
        let Some(piece) = HEAP.allocate_metadata(size_of::<Ring>()) else {
            return false;
        };
        let ring = piece.cast::<Ring>();
        // SAFETY: a piece of metadata is aligned to its size, which is enough, and ours alone.
        unsafe { ring.write(Ring::new(piece.as_ptr() as u64 ^ HEAP.os.thread_cpu_ns())) };
        self.ring.store(ring.as_ptr(), Ordering::Relaxed);
        STRICT_THREADS.fetch_add(1, Ordering::Release);
        true
    }

    /// Whether the thread's requests go to the bins at once.
    pub(super) fn goes_around_cache(&self) -> bool {
        self.flags() & NO_CACHE != 0
    }

    /// Whether only the profile samples the thread, so that its word leads to its own cache.
    #[inline(always)]
    pub(super) fn is_sampled_alone(&self) -> bool {
        self.flags() & SAMPLED_ALONE != 0
    }

    /// After a slow operation, and a change of the thread's own: the settings of the profile may have changed.
    #[inline]
    pub(super) fn follow_settings(&self) {
        if !self.sampler.is_up_to_date() {
            self.take_settings();
        }
    }

    /// Follows the current settings of the profile. If the purger is using the cache, it tries again at the next slow
    /// operation.
    #[cold]
    pub(super) fn take_settings(&self) {
        let done = match self.is_sampled_alone() {
            // The profile that a tool asked for is over: the thread is as before.
            // SAFETY: the record is the calling thread's.
            true if !is_on() && !is_active() => unsafe { HEAP.set_rations(self.cache(), None) },
            true => self.ration(),
            false => true,
        };
        if done {
            self.sampler.take_settings();
        }
    }

    /// Gives the thread's cache rations whose distance to the next sample is not set yet. False if there is no memory, or if
    /// the cache cannot be entered now.
    fn ration(&self) -> bool {
        if self.rations.load(Ordering::Relaxed).is_null() {
            let piece = HEAP.allocate_metadata(size_of::<Rations>());
            let piece = piece.map_or(null_mut(), |piece| piece.as_ptr().cast());
            self.rations.store(piece, Ordering::Relaxed);
        }
        // SAFETY: the record is the calling thread's, and the memory goes with it.
        NonNull::new(self.rations.load(Ordering::Relaxed))
            .is_some_and(|rations| unsafe { HEAP.set_rations(self.cache(), Some(rations)) })
    }

    /// Ends the rations, so that every request of the thread can be observed. False if the cache cannot be entered: in a
    /// signal handler that interrupted a request.
    #[cold]
    pub(super) fn end_rations(&self) -> bool {
        // The purger has a cache for some microseconds.
        const TURNS: usize = 1000;
        let ended = (0..TURNS).any(|_| {
            // SAFETY: the record is the calling thread's.
            let ended = unsafe { HEAP.set_rations(self.cache(), None) };
            if !ended {
                HEAP.os.yield_now();
            }
            ended
        });
        if ended {
            self.flags.fetch_and(!SAMPLED_ALONE, Ordering::Relaxed);
            self.counters.allocated.store(0, Ordering::Relaxed);
            self.counters.deallocated.store(0, Ordering::Relaxed);
            self.peak.store(0, Ordering::Relaxed);
        }
        ended
    }

    /// Counts a new block of `bytes` usable bytes. Allocations call `super::observed::count_new`, which
    /// does more.
    #[inline(always)]
    pub fn count_new(&self, bytes: usize) {
        add(&self.counters.allocated, bytes);
        let net = self.net();
        if net > self.peak.load(Ordering::Relaxed) {
            self.peak.store(net, Ordering::Relaxed);
        }
    }

    /// The peak of the thread's live bytes, relative to their number at the last reset.
    pub(super) fn peak(&self) -> u64 {
        let from = self.peak_from.load(Ordering::Relaxed);
        let most = self.peak.load(Ordering::Relaxed);
        most.saturating_sub(from).max(0).cast_unsigned()
    }

    /// Resets the peak to the bytes that are live now.
    pub(super) fn reset_peak(&self) {
        let net = self.net();
        self.peak_from.store(net, Ordering::Relaxed);
        self.peak.store(net, Ordering::Relaxed);
    }

    /// Lets the thread's requests go to its cache, or to the bins at once.
    pub(super) fn set_goes_around_cache(&self, around: bool) {
        if around {
            self.flags.fetch_or(NO_CACHE, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!NO_CACHE, Ordering::Relaxed);
        }
    }

    /// Bytes that the thread allocated less the bytes that it freed, since it is observed. Negative if it frees blocks
    /// of other threads.
    #[inline(always)]
    fn net(&self) -> i64 {
        let allocated = self.counters.allocated.load(Ordering::Relaxed);
        let freed = self.counters.deallocated.load(Ordering::Relaxed);
        allocated.wrapping_sub(freed).cast_signed()
    }

    /// Counts a freed block.
    #[inline(always)]
    pub fn count_freed(&self, bytes: usize) {
        add(&self.counters.deallocated, bytes);
    }
}

/// One instruction on x86-64, without a lock prefix.
#[inline(always)]
fn add(counter: &AtomicU64, bytes: usize) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(bytes as u64);
    counter.store(sum, Ordering::Relaxed);
}

/// Observes every thread for `flags` as well: new threads at once, others from their next slow operation on.
pub fn observe_everyone(flags: u8) {
    EVERYONE.fetch_or(flags, Ordering::Relaxed);
}

/// Threads that are not observed yet need not be observed for `flags` any more.
pub(super) fn leave_everyone(flags: u8) {
    EVERYONE.fetch_and(!flags, Ordering::Relaxed);
}

/// Whether a thread is observed, or sampled, without having asked for it.
#[inline]
pub(super) fn is_everyone_observed() -> bool {
    EVERYONE.load(Ordering::Relaxed) != 0
}

/// How a thread that has not asked for anything is observed.
pub(super) fn of_everyone() -> Interest {
    if EVERYONE.load(Ordering::Relaxed) & !PROFILE == 0 { Interest::Samples } else { Interest::Requests }
}

/// Whether a thread that has not asked for anything keeps free slots in its cache.
pub(super) fn everyone_has_cache() -> bool {
    EVERYONE.load(Ordering::Relaxed) & NO_CACHE == 0
}

/// A record for the calling thread, whose cache is `cache`. The thread may be observed for more than `interest`. It is
/// marked as busy.
pub(super) fn make(cache: &'static Cache, interest: Interest) -> Option<&'static Observer> {
    let place = HEAP.allocate_metadata(size_of::<Observer>())?.cast::<Observer>();
    let alone = match interest {
        Interest::Samples => SAMPLED_ALONE,
        Interest::Requests => 0,
    };
    // SAFETY: a piece of metadata is aligned to its size, which is enough, and ours alone.
    let observer = unsafe {
        place.write(Observer {
            cache: NonNull::from(cache),
            flags: AtomicU8::new(EVERYONE.load(Ordering::Relaxed) & !PROFILE | alone),
            counters: Counters { allocated: AtomicU64::new(0), deallocated: AtomicU64::new(0) },
            peak_from: AtomicI64::new(0),
            peak: AtomicI64::new(0),
            sampler: Sampler::new(place.as_ptr() as u64),
            rations: AtomicPtr::new(null_mut()),
            ring: AtomicPtr::new(null_mut()),
        });
        place.as_ref()
    };
    if observer.flags() & STRICT != 0 && !observer.make_ring() {
        // SAFETY: no thread knows the record.
        unsafe { HEAP.free_metadata(place.cast(), size_of::<Observer>()) };
        return None;
    }
    if observer.is_sampled_alone() && !observer.ration() {
        observer.flags.fetch_and(!SAMPLED_ALONE, Ordering::Relaxed);
    }
    Some(observer)
}

/// Frees the record of a thread that ends.
///
/// # Safety
/// It came from [`make`], and no thread uses it any more.
pub(super) unsafe fn unmake(observer: &'static Observer) {
    end_thread(&observer.sampler);
    // SAFETY: the record came from `make` and no thread uses it (fn contract); the cache that the rations were of is unmade.
    unsafe {
        if let Some(rations) = NonNull::new(observer.rations.load(Ordering::Relaxed)) {
            HEAP.free_metadata(rations.cast(), size_of::<Rations>());
        }
        if let Some(ring) = observer.ring() {
            HEAP.free_metadata(NonNull::from(ring).cast(), size_of::<Ring>());
        }
        HEAP.free_metadata(NonNull::from(observer).cast(), size_of::<Observer>())
    }
}
