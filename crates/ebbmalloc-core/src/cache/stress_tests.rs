//! Real threads on the real kernel: owners use their caches at full speed while a purger claims and
//! drains them without a pause. This is what loom cannot show: that membarrier really orders the
//! owner's plain store before its load.

use super::bins::Bins;
use super::cache::{Cache, Entered};
use super::registry::Registry;
use crate::arena::Arena;
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::os::{Os, linux::Linux};
use crate::size::class_of;
use crate::slab::bin::{Age, Supply};
use core::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A pair of a pop and a push is short against the purger's pass, so that a pass meets the window
/// between the owner's store and its load often.
const SIZE: usize = 64;
/// Without the barrier the test fails within a second on two processors; the rest is margin.
const SECONDS: u64 = 4;
/// With EBB_LONG=1.
const LONG_SECONDS: u64 = 120;

struct Shared {
    os: Linux,
    arena: Arena,
    metadata: Metadata,
    bins: Bins,
    registry: Registry,
    stop: AtomicBool,
    /// Operations that met a claim: the proof that the threads met at all.
    met: AtomicUsize,
}

impl Shared {
    fn supply(&self) -> Supply<'_, Linux> {
        Supply {
            os: &self.os,
            arena: &self.arena,
            metadata: &self.metadata,
            page_shift: self.os.page_bytes().trailing_zeros(),
            tick: 16,
            aligned_shard: None,
        }
    }

    /// The slow way to a slot: around the cache if that is claimed.
    fn slow_pop(&self, cache: &Cache, class: usize) -> *mut u8 {
        if cache.enter() == Entered::Mine {
            // SAFETY: entered.
            let slot = unsafe { cache.pop_or_refill(&self.supply(), &self.bins, class) };
            cache.leave();
            return slot;
        }
        self.met.fetch_add(1, Ordering::Relaxed);
        let mut slot = [null_mut()];
        self.bins.get(0, class).take(&self.supply(), class, 0, &mut slot, Wait::Yes);
        slot[0]
    }

    /// The slow way back, likewise.
    fn slow_push(&self, cache: &Cache, class: usize, slot: *mut u8) {
        if cache.enter() == Entered::Mine {
            // SAFETY: entered; the slot is of this class.
            unsafe { cache.push_or_flush(&self.supply(), &self.bins, class, slot) };
            cache.leave();
            return;
        }
        self.met.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the slot is of this class.
        unsafe { self.bins.put(&self.supply(), class, &[slot], Age::Fresh, Wait::Yes) };
    }

    /// One owner: takes a slot, marks it, finds its mark, puts it back.
    fn own(&self, number: usize) {
        let class = class_of(SIZE);
        let cache = self.registry.attach(&self.supply(), 1, None).expect("memory");
        // SAFETY: unmade below only.
        let own: &Cache = unsafe { cache.as_ref() };
        let mut turn = number << 48;
        while !self.stop.load(Ordering::Relaxed) {
            for _ in 0..256 {
                turn += 1;
                let slot = own.pop(class).map_or_else(|| self.slow_pop(own, class), NonNull::as_ptr);
                assert!(!slot.is_null(), "no slot");
                let mark = slot.cast::<usize>();
                // SAFETY: the slot is this thread's; if the protocol is broken another has it too.
                unsafe {
                    mark.write_volatile(turn);
                    assert_eq!(mark.read_volatile(), turn, "a slot was given out twice");
                }
                if !own.push(class, slot) {
                    self.slow_push(own, class, slot);
                }
            }
        }
        // SAFETY: not used again.
        unsafe { self.registry.detach(&self.supply(), &self.bins, cache) };
    }

    /// Claims and drains without a pause.
    fn purge(&self) {
        let mut all = false;
        while !self.stop.load(Ordering::Relaxed) {
            self.registry.drain(&self.supply(), &self.bins, all, None);
            all = !all;
        }
    }
}

#[test]
fn claims_under_load() {
    let shared = Shared {
        os: Linux::new(),
        arena: Arena::new(),
        metadata: Metadata::new(),
        bins: Bins::new(),
        registry: Registry::new(),
        stop: AtomicBool::new(false),
        met: AtomicUsize::new(0),
    };
    assert!(shared.os.membarrier(), "this kernel has no membarrier: no claims, and nothing to test");
    let owners = std::thread::available_parallelism().map_or(1, usize::from).clamp(2, 4) - 1;
    std::thread::scope(|scope| {
        for number in 1..=owners {
            let shared = &shared;
            scope.spawn(move || shared.own(number));
        }
        scope.spawn(|| shared.purge());
        let long = std::env::var("EBB_LONG").is_ok_and(|value| value == "1");
        let seconds = if long { LONG_SECONDS } else { SECONDS };
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
        shared.stop.store(true, Ordering::Relaxed);
    });
    assert!(shared.met.load(Ordering::Relaxed) > 0, "no owner ever met a claim");
    assert_eq!(shared.bins.get(0, class_of(SIZE)).lock(&shared.os).slots_out, 0, "slots were lost or made up");
}
