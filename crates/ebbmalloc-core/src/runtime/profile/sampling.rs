//! Which allocations of a thread are sampled, and what is kept of one.

use super::super::conf::Id;
use super::super::instance::HEAP;
use super::super::observer::{self, Observer};
use super::super::{in_force, thread};
use super::{GENERATION, LG_SAMPLE, dumps, hooks, is_active, is_on, lg_sample};
use crate::base::exact::usize_of;
use crate::profile::interval::{Intervals, LG_MAX, Weight};
use crate::profile::{DEPTH, Sampled, Thread};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// An interval that no thread comes to the end of.
const NEVER: i64 = i64::MAX / 2;

/// A thread's way to its next sample. Used by the thread alone, signal handlers included: relaxed.
pub(crate) struct Sampler {
    /// Bytes to the next sample; less than zero where there is one. What is taken from rations is not
    /// counted here, but by [`Sampler::draw_ahead`].
    left: AtomicI64,
    /// The mean interval that is sampled with.
    lg: AtomicU32,
    random: AtomicU64,
    /// `thread.prof.active`.
    active: AtomicBool,
    /// Of the settings that the above follow from.
    generation: AtomicU32,
    /// The thread's record in the profile; null until it is needed.
    thread: AtomicPtr<Thread>,
}

impl Sampler {
    /// Of a thread that becomes observed; `seed` should be another for each.
    pub(crate) fn new(seed: u64) -> Self {
        let sampler = Self {
            left: AtomicI64::new(NEVER),
            lg: AtomicU32::new(0),
            random: AtomicU64::new(seed),
            active: AtomicBool::new(super::thread_active_init()),
            generation: AtomicU32::new(0),
            thread: AtomicPtr::new(null_mut()),
        };
        sampler.take_settings();
        sampler
    }

    /// Counts an allocation of `bytes`; true if it is to be sampled, by [`record`].
    #[inline(always)]
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        let left = self.left.load(Ordering::Relaxed) - (bytes as u64).cast_signed();
        self.left.store(left, Ordering::Relaxed);
        left < 0
    }

    /// What is left after an allocation of `bytes`; `None` if it is to be sampled.
    #[inline(always)]
    pub(crate) fn left_after(&self, bytes: usize) -> Option<i64> {
        let left = self.left.load(Ordering::Relaxed) - (bytes as u64).cast_signed();
        (left >= 0).then_some(left)
    }

    /// Counts an allocation that [`Sampler::left_after`] was asked about.
    #[inline(always)]
    pub(crate) fn set_left(&self, left: i64) {
        self.left.store(left, Ordering::Relaxed);
    }

    /// The mean interval that is sampled with.
    pub(crate) fn lg(&self) -> u32 {
        self.lg.load(Ordering::Relaxed)
    }

    /// Whether the settings are those that the sampler follows.
    #[inline]
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.generation.load(Ordering::Relaxed) == GENERATION.load(Ordering::Relaxed)
    }

    /// Follows the settings as they are now; the way to the next sample begins.
    #[cold]
    pub(crate) fn take_settings(&self) {
        self.generation
            .store(GENERATION.load(Ordering::Relaxed), Ordering::Relaxed);
        self.lg.store(lg_sample(), Ordering::Relaxed);
        self.start_interval();
    }

    /// The way to the next sample begins.
    #[cold]
    pub(crate) fn start_interval(&self) {
        self.left.store(self.draw(), Ordering::Relaxed);
    }

    /// How many allocations of `bytes` come before the next one that is to be sampled.
    #[cold]
    pub(crate) fn draw_ahead(&self, bytes: usize) -> u64 {
        self.draw().cast_unsigned() / bytes as u64
    }

    fn draw(&self) -> i64 {
        if !is_active() || !self.active.load(Ordering::Relaxed) {
            return NEVER;
        }
        let mut intervals = Intervals::new(self.random.load(Ordering::Relaxed));
        let bytes = intervals.draw(self.lg());
        self.random.store(intervals.state(), Ordering::Relaxed);
        bytes
    }

    /// The thread's record in the profile, made if there is none. The thread is marked as busy.
    fn thread(&self) -> Option<NonNull<Thread>> {
        if let Some(thread) = NonNull::new(self.thread.load(Ordering::Relaxed)) {
            return Some(thread);
        }
        let thread = HEAP.profile.add_thread(&HEAP.store())?;
        self.thread.store(thread.as_ptr(), Ordering::Relaxed);
        Some(thread)
    }
}

/// Adds a new block of `bytes` usable bytes, that was chosen with a mean interval of `2^lg`, to the
/// profile; `is_short` if the memory that was taken for it is longer.
#[cold]
#[inline(never)]
pub(crate) fn record(observer: &Observer, block: *mut u8, bytes: usize, lg: u32, is_short: bool) {
    if !is_active() || HEAP.os.is_confined() {
        return;
    }
    let weight = Weight::of(bytes, lg);
    // A signal handler that interrupted a request is not sampled: it may wait for nothing.
    thread::set_apart(|| {
        let mut frames = [0; DEPTH];
        let most = DEPTH.min(usize_of(in_force::number(Id::ProfBtMax)));
        let depth = hooks::walk(&mut frames[..most]);
        let Some(thread) = observer.sampler.thread() else {
            return;
        };
        let sampled = Sampled {
            thread,
            frames: &frames[..depth],
            weight,
            usable_bytes: if is_short { bytes } else { 0 },
        };
        // SAFETY: the block is the caller's, the thread's record lives until its end, and a thread that
        // is set apart may wait.
        unsafe { HEAP.sample(block, &sampled) };
    });
    // What was allocated since the last sample, on average.
    dumps::after_allocations(weight.bytes);
}

/// At a thread's end.
pub(crate) fn end_thread(sampler: &Sampler) {
    if let Some(thread) = NonNull::new(sampler.thread.swap(null_mut(), Ordering::Relaxed)) {
        // SAFETY: the thread's own record, and it is gone from where it could be found.
        unsafe { HEAP.profile.end_thread(&HEAP.store(), thread) };
    }
}

/// `thread.prof.active`: whether the calling thread is sampled while anything is.
pub fn is_thread_active() -> bool {
    match thread::any_observer() {
        Some(observer) => observer.sampler.active.load(Ordering::Relaxed),
        None => is_on() && super::thread_active_init(),
    }
}

/// Sets that. False without memory for it.
pub fn set_thread_active(active: bool) -> bool {
    if active == is_thread_active() {
        return true;
    }
    let Some(observer) = observer::sampled_now() else {
        return false;
    };
    observer.sampler.active.store(active, Ordering::Relaxed);
    observer.take_settings();
    true
}

/// `thread.prof.name`, with a NUL behind it; null if the thread has none.
pub fn start_of_thread_name() -> *const u8 {
    let thread = thread::any_observer()
        .and_then(|observer| NonNull::new(observer.sampler.thread.load(Ordering::Relaxed)));
    thread.map_or(core::ptr::null(), |thread| {
        // SAFETY: the calling thread's own record.
        unsafe { HEAP.profile.name(&HEAP.os, thread) }
    })
}

/// Gives the calling thread a name in dumps. False without memory for it.
pub fn set_thread_name(name: &[u8]) -> bool {
    let Some(observer) = observer::sampled_now() else {
        return false;
    };
    thread::set_apart(|| {
        observer.sampler.thread().is_some_and(|thread| {
            // SAFETY: the calling thread's own record.
            unsafe { HEAP.profile.set_name(&HEAP.store(), thread, name) }
        })
    })
    .unwrap_or(false)
}

/// `prof.reset`: forgets all samples, and samples from now on with a mean interval of `2^lg` bytes.
pub fn reset(lg: Option<u32>) {
    if let Some(lg) = lg {
        LG_SAMPLE.store(lg.min(LG_MAX), Ordering::Relaxed);
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    thread::set_apart(|| HEAP.profile.reset(&HEAP.store()));
    if let Some(observer) = thread::any_observer() {
        observer.follow_settings();
    }
    if is_active() {
        thread::with_own_cache(|own| HEAP.mark_caches(own));
    }
}
