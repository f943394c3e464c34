//! A thread's way to its next sample.

use super::instance::HEAP;
use super::profile_settings::{generation, is_active, is_on, lg_sample, thread_active_init};
use crate::profile::Thread;
use crate::profile::interval::Intervals;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// An interval that no thread comes to the end of.
const NEVER: i64 = i64::MAX / 2;

/// A thread's way to its next sample. Used by the thread alone, signal handlers included: relaxed.
pub(super) struct Sampler {
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
    pub(super) fn new(seed: u64) -> Self {
        let sampler = Self {
            left: AtomicI64::new(NEVER),
            lg: AtomicU32::new(0),
            random: AtomicU64::new(seed),
            active: AtomicBool::new(thread_active_init()),
            generation: AtomicU32::new(0),
            thread: AtomicPtr::new(null_mut()),
        };
        sampler.take_settings();
        sampler
    }

    /// Counts an allocation of `bytes`; true if it is to be sampled, by [`record`].
    #[inline(always)]
    pub(super) fn takes(&self, bytes: usize) -> bool {
        let left = self.left.load(Ordering::Relaxed) - (bytes as u64).cast_signed();
        self.left.store(left, Ordering::Relaxed);
        left < 0
    }

    /// Bytes to the next sample after an allocation of `bytes`; `None` if it is to be sampled.
    #[inline(always)]
    pub(super) fn left_after(&self, bytes: usize) -> Option<i64> {
        let left = self.left.load(Ordering::Relaxed) - (bytes as u64).cast_signed();
        (left >= 0).then_some(left)
    }

    /// Counts an allocation that [`Sampler::left_after`] was asked about.
    #[inline(always)]
    pub(super) fn set_left(&self, left: i64) {
        self.left.store(left, Ordering::Relaxed);
    }

    /// The mean interval that is sampled with.
    pub(super) fn lg(&self) -> u32 {
        self.lg.load(Ordering::Relaxed)
    }

    /// Whether the sampler follows these settings.
    #[inline]
    pub(super) fn is_up_to_date(&self) -> bool {
        self.generation.load(Ordering::Relaxed) == generation()
    }

    /// Follows the settings as they are now; the way to the next sample begins.
    #[cold]
    pub(super) fn take_settings(&self) {
        self.generation.store(generation(), Ordering::Relaxed);
        self.lg.store(lg_sample(), Ordering::Relaxed);
        self.start_interval();
    }

    /// The way to the next sample begins.
    #[cold]
    pub(super) fn start_interval(&self) {
        self.left.store(self.draw(), Ordering::Relaxed);
    }

    /// How many allocations of `bytes` come before the next one that is to be sampled.
    #[cold]
    pub(super) fn draw_ahead(&self, bytes: usize) -> u64 {
        self.draw().cast_unsigned() / bytes as u64
    }

    /// `thread.prof.active`.
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Sets that; [`Sampler::take_settings`] follows it.
    pub(super) fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Relaxed);
    }

    fn draw(&self) -> i64 {
        // A thread's own choice is one of the settings.
        if !is_active() || is_on() && !self.is_active() {
            return NEVER;
        }
        let mut intervals = Intervals::new(self.random.load(Ordering::Relaxed));
        let bytes = intervals.draw(self.lg());
        self.random.store(intervals.state(), Ordering::Relaxed);
        bytes
    }

    /// The thread's record in the profile, if there is one.
    pub(super) fn known_thread(&self) -> Option<NonNull<Thread>> {
        NonNull::new(self.thread.load(Ordering::Relaxed))
    }

    /// The thread's record in the profile, made if there is none. The thread is marked as busy.
    pub(super) fn thread(&self) -> Option<NonNull<Thread>> {
        if let Some(thread) = self.known_thread() {
            return Some(thread);
        }
        let thread = HEAP.parts.profile.add_thread(&HEAP.store())?;
        self.thread.store(thread.as_ptr(), Ordering::Relaxed);
        Some(thread)
    }
}

pub(super) fn end_thread(sampler: &Sampler) {
    if let Some(thread) = NonNull::new(sampler.thread.swap(null_mut(), Ordering::Relaxed)) {
        // SAFETY: the thread's own record, and it is gone from where it could be found.
        unsafe { HEAP.parts.profile.end_thread(&HEAP.store(), thread) };
    }
}
