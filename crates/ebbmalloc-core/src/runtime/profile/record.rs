//! A sample is taken: the stack is walked, and what was allocated goes into the profile.

use super::super::conf::Id;
use super::super::instance::HEAP;
use super::super::observer::Observer;
use super::super::profile_settings::{is_active, is_on};
use super::super::{in_force, thread};
use super::{dumps, hooks, lease, python};
use crate::base::exact::usize_of;
use crate::profile::interval::Weight;
use crate::profile::{DEPTH, Sampled, Thread, WORDS};
use core::ptr::NonNull;

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
    let sampled = thread::set_apart(|| {
        let (mut frames, mut stacks) = ([0; WORDS], [0; DEPTH]);
        let most = DEPTH.min(usize_of(in_force::number(Id::ProfBtMax)));
        let depth = hooks::walk(&mut frames[..most], &mut stacks);
        let depth = depth + python::walk(&mut frames[depth..], &stacks[..depth]);
        let Some(thread) = thread_of(observer) else {
            return;
        };
        let sampled = Sampled {
            thread,
            frames: &frames[..depth],
            block: (block as usize, bytes),
            weight,
            usable_bytes: if is_short { bytes } else { 0 },
        };
        // SAFETY: the block is the caller's, the thread's record lives until its end, and a thread that
        // is set apart may wait.
        unsafe { HEAP.sample(block, &sampled) };
    });
    // What was allocated since the last sample, on average.
    dumps::after_allocations(weight.bytes);
    if sampled.is_some() {
        lease::end_if_over();
    }
}

/// The record that the thread's samples go to. A profile that a tool asked for has one for all: threads that come and
/// go would make it longer and longer.
fn thread_of(observer: &Observer) -> Option<NonNull<Thread>> {
    if is_on() { observer.sampler.thread() } else { HEAP.parts.profile.everyone(&HEAP.store()) }
}
