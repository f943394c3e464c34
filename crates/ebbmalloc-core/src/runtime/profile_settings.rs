//! The settings of the heap profile, as they are in force now.

use super::conf::{Id, Options};
use super::instance::HEAP;
use crate::base::exact::{u32_of, usize_of};
use crate::profile::interval::LG_MAX;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use ebb_stats::profile::MOST_BYTES_KEPT;

// Each is a value of its own: relaxed.
static ON: AtomicBool = AtomicBool::new(false);
static KEPT: AtomicBool = AtomicBool::new(false);
static ACTIVE: AtomicBool = AtomicBool::new(false);
static THREAD_ACTIVE_INIT: AtomicBool = AtomicBool::new(false);
static LG_SAMPLE: AtomicU32 = AtomicU32::new(0);
static GDUMP: AtomicBool = AtomicBool::new(false);
/// Bytes of allocations between two dumps; 0 is never.
static INTERVAL: AtomicU64 = AtomicU64::new(0);
/// Counted up when a thread must look at the settings above again.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// At boot: puts the settings into force.
pub(super) fn configure(options: &Options<'_>) {
    let lg = options.number(Id::LgProfSample).min(u64::from(LG_MAX));
    let lg = u32_of(usize_of(lg));
    if !options.is(Id::Prof) {
        if options.is(Id::Profile) {
            KEPT.store(true, Ordering::Relaxed);
            ACTIVE.store(true, Ordering::Relaxed);
            begin_for_tool(lg);
            HEAP.parts.profile.set_most_bytes(&HEAP.os, MOST_BYTES_KEPT);
        }
        return;
    }
    ON.store(true, Ordering::Relaxed);
    ACTIVE.store(options.is(Id::ProfActive), Ordering::Relaxed);
    let every_thread = options.is(Id::ProfThreadActiveInit);
    THREAD_ACTIVE_INIT.store(every_thread, Ordering::Relaxed);
    LG_SAMPLE.store(lg, Ordering::Relaxed);
    GDUMP.store(options.is(Id::ProfGdump), Ordering::Relaxed);
    if let Ok(lg) = u32::try_from(options.number(Id::LgProfInterval)) {
        INTERVAL.store(1 << lg.min(63), Ordering::Relaxed);
    }
    HEAP.parts.profile.set_accumulates(&HEAP.os, options.is(Id::ProfAccum));
}

/// `opt.prof`: whether there is a profile.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Whether the profile is the program's own, by `prof:true` or `profile:on`.
pub(super) fn is_by_settings() -> bool {
    is_on() || KEPT.load(Ordering::Relaxed)
}

/// `prof.active`: whether anything is sampled.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Sets that; what it was.
pub(super) fn swap_active(active: bool) -> bool {
    ACTIVE.swap(active, Ordering::Relaxed)
}

/// `prof.thread_active_init`: whether a thread is sampled if it says nothing.
pub fn thread_active_init() -> bool {
    THREAD_ACTIVE_INIT.load(Ordering::Relaxed)
}

/// Sets that.
pub(super) fn store_thread_active_init(active: bool) {
    THREAD_ACTIVE_INIT.store(active, Ordering::Relaxed);
}

/// `prof.gdump`: whether the profile is dumped when the heap is larger than ever.
pub fn dumps_at_growth() -> bool {
    GDUMP.load(Ordering::Relaxed)
}

/// Sets that.
pub fn set_dumps_at_growth(on: bool) {
    GDUMP.store(on, Ordering::Relaxed);
}

/// `prof.interval`: bytes of allocations between two dumps; 0 is never.
pub fn interval() -> u64 {
    INTERVAL.load(Ordering::Relaxed)
}

/// `prof.lg_sample`: the logarithm of the mean number of bytes between samples.
pub fn lg_sample() -> u32 {
    LG_SAMPLE.load(Ordering::Relaxed)
}

pub(super) fn set_lg_sample(lg: u32) {
    LG_SAMPLE.store(lg.min(LG_MAX), Ordering::Relaxed);
}

/// Which state of the settings this is, for threads that follow them.
#[inline]
pub(super) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// A profile that a tool asked for begins: every thread is sampled.
pub(super) fn begin_for_tool(lg: u32) {
    set_lg_sample(lg);
    store_thread_active_init(true);
}

/// Lets each thread look at the settings again.
pub(super) fn begin_generation() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
