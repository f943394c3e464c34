//! The heap profile of this process: whether it is on, and what can be asked of it while it runs.
//!
//! Sampled are threads that are observed ([`super::observer`]): all of them while the profile is active
//! and nothing else is said, or those that asked. `sampling` decides which allocations and walks the
//! stack, `dumps` writes the files, `hooks` are the program's part in both. Nothing of it runs, and no memory is taken, without `prof:true`.

mod backtrace;
mod dumps;
mod hooks;
mod sampling;

pub(super) use backtrace::adopt;
pub(super) use dumps::{after_growth, at_exit};
pub use dumps::{dump, set_prefix};
pub use hooks::{
    AfterDump, WalkStack, dump_listener, set_dump_listener, set_stack_walker, stack_walker,
};
pub(super) use sampling::{Sampler, end_thread, record};
pub use sampling::{
    is_thread_active, reset, set_thread_active, set_thread_name, start_of_thread_name,
};

use super::conf::{Id, Options};
use super::instance::HEAP;
use super::observer;
use crate::base::exact::{u32_of, usize_of};
use crate::profile::interval::LG_MAX;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

// Each is a value of its own: relaxed.
static ON: AtomicBool = AtomicBool::new(false);
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
    if !options.is(Id::Prof) {
        return;
    }
    ON.store(true, Ordering::Relaxed);
    ACTIVE.store(options.is(Id::ProfActive), Ordering::Relaxed);
    let every_thread = options.is(Id::ProfThreadActiveInit);
    THREAD_ACTIVE_INIT.store(every_thread, Ordering::Relaxed);
    let lg = options.number(Id::LgProfSample).min(u64::from(LG_MAX));
    LG_SAMPLE.store(u32_of(usize_of(lg)), Ordering::Relaxed);
    GDUMP.store(options.is(Id::ProfGdump), Ordering::Relaxed);
    if let Ok(lg) = u32::try_from(options.number(Id::LgProfInterval)) {
        INTERVAL.store(1 << lg.min(63), Ordering::Relaxed);
    }
    HEAP.profile
        .set_accumulates(&HEAP.os, options.is(Id::ProfAccum));
    observe();
}

/// `opt.prof`: whether there is a profile.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// `prof.active`: whether anything is sampled.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Starts or stops sampling. A thread that runs starts at its next request that its cache cannot
/// serve; that comes at once, since the caches are marked.
pub fn set_active(active: bool) {
    if ACTIVE.swap(active, Ordering::Relaxed) == active {
        return;
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    observe();
    if active {
        super::thread::with_own_cache(|own| HEAP.mark_caches(own));
    }
}

/// `prof.thread_active_init`: whether a thread is sampled if it says nothing.
pub fn thread_active_init() -> bool {
    THREAD_ACTIVE_INIT.load(Ordering::Relaxed)
}

/// Sets that for threads that are not observed yet.
pub fn set_thread_active_init(active: bool) {
    THREAD_ACTIVE_INIT.store(active, Ordering::Relaxed);
    observe();
}

/// Threads are observed for the profile while they are to be sampled without having asked.
fn observe() {
    if is_active() && thread_active_init() {
        observer::observe_everyone(observer::PROFILE);
    } else {
        observer::leave_everyone(observer::PROFILE);
    }
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
