//! Sampled guards: of each 64 MiB of slots that a thread's cache is refilled with, one block of up to a page gets a page of
//! its own between two that fault ([`crate::heap::guarded`]). A write or read beyond it, or after it was freed, ends the
//! program with SIGSEGV at that place: no handler is installed. `ebb explain` says from the core dump which block it was.
//! Not with `check:off`, nor in strict mode, which guards all blocks in its own way.

use super::checks::report;
use super::instance::HEAP;
use super::profile::backtrace;
use super::state::current;
use super::thread;
use crate::base::corrupt::Corruption;
use crate::base::lock::Wait;
use crate::heap::guarded::By;
use crate::os::Os;
use crate::size::QUANTUM;
use ebb_stats::guards::DEPTH;

/// 55 microseconds for the page and two stacks are less than 1 % of the time that it takes to refill caches with as much.
const INTERVAL: usize = 64 << 20;

/// A block with guards, if one is due, for a request that the thread's cache did not serve.
#[inline]
pub fn allocate(size: usize) -> Option<usize> {
    if current().was_filled(INTERVAL) { sample(size) } else { None }
}

#[cold]
fn sample(size: usize) -> Option<usize> {
    let is_short = size <= HEAP.os.page_bytes() - QUANTUM;
    if !is_short || !HEAP.os.samples_guards() || HEAP.os.address_space_limit().is_some() {
        return None;
    }
    with_stack(|by| HEAP.parts.guarded.allocate(&HEAP.os, size, by)).flatten()
}

/// Frees the block at `block`, which is in the pool.
#[cold]
pub fn free(block: usize) {
    let free = |by: By| HEAP.parts.guarded.free(&HEAP.os, block, by);
    let confined = HEAP.os.is_confined();
    let freed = if confined { None } else { with_stack(free) };
    if let Err(what) = freed.unwrap_or_else(|| free(By::UNKNOWN)) {
        end(what, block);
    }
}

fn end(what: Corruption, address: usize) -> ! {
    let record = HEAP.parts.guarded.record(address).unwrap_or_default();
    report::sampled(what, address, &record)
}

/// Calls `work` with the calling thread's stack; `None` in a signal handler that interrupted a request.
fn with_stack<R>(work: impl FnOnce(By) -> R) -> Option<R> {
    thread::set_apart(|| {
        let mut frames = [0; DEPTH];
        let depth = backtrace::walk(&mut frames, &mut [], Wait::Yes);
        work(By { thread: HEAP.os.gettid(), stack: &frames[..depth] })
    })
}
