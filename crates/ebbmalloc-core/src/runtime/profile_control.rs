//! What the control side asks of the profile and changes while the process runs.

use super::access::with_own_cache;
use super::instance::HEAP;
use super::profile::lease::publish_settings;
use super::profile::watch::follow;
use super::profile_settings as settings;
use super::state::any_observer;
use super::thread::set_apart;
use super::thread_control;
use core::ptr::null;

pub use super::profile::dumps::{dump, set_prefix};
pub use super::profile::hooks::{
    AfterDump, WalkStack, dump_listener, set_dump_listener, set_stack_walker, stack_walker,
};
pub use super::profile_settings::{
    dumps_at_growth, interval, is_active, is_on, lg_sample, set_dumps_at_growth, thread_active_init,
};

/// Starts or stops sampling. A thread that runs starts at its next request that its cache cannot
/// serve; that comes at once, since the caches are marked.
pub fn set_active(active: bool) {
    if settings::swap_active(active) == active {
        return;
    }
    settings::begin_generation();
    follow();
    publish_settings();
    if active {
        with_own_cache(|own| HEAP.mark_caches(own));
    }
}

/// Sets that for threads that are not observed yet.
pub fn set_thread_active_init(active: bool) {
    settings::store_thread_active_init(active);
    follow();
}

/// `thread.prof.active`: whether the calling thread is sampled while anything is.
pub fn is_thread_active() -> bool {
    match any_observer() {
        Some(observer) => observer.sampler.is_active(),
        None => settings::is_on() && settings::thread_active_init(),
    }
}

/// Sets that. False without memory for it.
pub fn set_thread_active(active: bool) -> bool {
    if active == is_thread_active() {
        return true;
    }
    let Some(observer) = thread_control::sampled_now() else {
        return false;
    };
    observer.sampler.set_active(active);
    observer.take_settings();
    true
}

/// `thread.prof.name`, with a NUL after it; null if the thread has none.
pub fn start_of_thread_name() -> *const u8 {
    let thread = any_observer().and_then(|observer| observer.sampler.known_thread());
    thread.map_or(null(), |thread| {
        // SAFETY: the calling thread's own record.
        unsafe { HEAP.parts.profile.name(&HEAP.os, thread) }
    })
}

/// Gives the calling thread a name in dumps. False without memory for it.
pub fn set_thread_name(name: &[u8]) -> bool {
    let Some(observer) = thread_control::sampled_now() else {
        return false;
    };
    set_apart(|| {
        observer.sampler.thread().is_some_and(|thread| {
            // SAFETY: the calling thread's own record.
            unsafe { HEAP.parts.profile.set_name(&HEAP.store(), thread, name) }
        })
    })
    .unwrap_or(false)
}

/// Calls `each` with each stack of the profile: return addresses, the innermost first; objects (in units of 1/256) and bytes
/// that were allocated, as far as that is kept, and that are live. `each` may not allocate.
pub fn visit(each: &mut dyn FnMut(&[usize], [u64; 4])) {
    set_apart(|| {
        HEAP.parts.profile.visit(&HEAP.os, &mut |frames, sums| {
            let [all, live] = [sums.all, sums.live];
            each(frames, [all.objects, all.bytes, live.objects, live.bytes]);
        });
    });
}

/// `prof.reset`: forgets all samples, and samples from now on with a mean interval of `2^lg` bytes.
pub fn reset(lg: Option<u32>) {
    if let Some(lg) = lg {
        settings::set_lg_sample(lg);
    }
    settings::begin_generation();
    publish_settings();
    set_apart(|| HEAP.parts.profile.reset(&HEAP.store()));
    if let Some(observer) = any_observer() {
        observer.follow_settings();
    }
    if settings::is_active() {
        with_own_cache(|own| HEAP.mark_caches(own));
    }
}
