//! The heap's growth and the limits of the process's cgroups. At a limit the kernel kills the process at a page fault; no
//! request fails before that. So a heap that grows reads how much memory is left, each time it has taken a sixteenth of
//! it. When little is left, everything idle is returned at once instead of after its delay.
//!
//! Called by the runtime after a slow operation, without a lock, and by the purger at its ticks.

use super::Heap;
use crate::arena::GROWTH_STEP;
use crate::os::{Headroom, Os, Scarce};
use core::sync::atomic::Ordering;

/// Least growth between two looks. A look costs as much as the page faults of some 200 KiB.
const LEAST_STRIDE: usize = 1 << 20;
/// Growth between two looks if there is no limit, because one may be set later.
const UNLIMITED_STRIDE: usize = 64 << 20;
/// Near the limit: less than a sixteenth of it is left, within these bounds. The lower is what a few
/// threads can touch between two looks; the upper keeps a large container from purging early.
const LEAST_MARGIN: usize = 8 << 20;
const MOST_MARGIN: usize = 256 << 20;
/// Near the limit a pass is worth its time when so much was freed since the last one.
const WORTH_BYTES: usize = 1 << 20;
/// Or after this long: caches may hold slots that are not counted.
const PATIENCE_MS: u64 = 100;

/// If less than this is left, idle pages are returned at once.
const fn margin(limit_bytes: usize) -> usize {
    let share = limit_bytes / 16;
    let bounded = if share < LEAST_MARGIN {
        LEAST_MARGIN
    } else if share > MOST_MARGIN {
        MOST_MARGIN
    } else {
        share
    };
    // Otherwise a container of a few MiB would always be near its limit.
    if bounded < limit_bytes / 4 { bounded } else { limit_bytes / 4 }
}

impl<O: Os> Heap<O> {
    /// What a slow operation looks at when it is done; see [`crate::arena::Arena::attention`].
    #[inline]
    pub fn attention(&self) -> usize {
        self.arena.attention()
    }

    /// Whether the heap has grown by a step; the next step begins.
    pub fn take_growth_step(&self) -> bool {
        let grown = self.arena.take_growth();
        if grown {
            let step = if self.is_near_limit() { LEAST_STRIDE } else { GROWTH_STEP };
            self.arena.set_growth_mark(self.arena.fresh_bytes() + step);
        }
        grown
    }

    /// Looks at the limit if the heap has grown enough for it. True if everything idle should go
    /// now: [`Heap::trim`].
    pub fn look_at_limit(&self) -> bool {
        let fresh = self.arena.fresh_bytes();
        let pressure = &self.parts.pressure;
        if pressure.looking.swap(true, Ordering::Acquire) {
            return false;
        }
        let short = fresh >= pressure.due_at() && self.look(fresh);
        let due = pressure.due_at();
        self.arena.set_growth_mark(due.min(fresh + GROWTH_STEP));
        pressure.looking.store(false, Ordering::Release);
        short
    }

    /// Looks again if the limit was near at the last look.
    pub fn refresh_pressure(&self) {
        let pressure = &self.parts.pressure;
        if self.is_near_limit() && !pressure.looking.swap(true, Ordering::Acquire) {
            self.look(self.arena.fresh_bytes());
            pressure.looking.store(false, Ordering::Release);
        }
    }

    /// Whether the limit was near at the last look. If so, idle pages are returned at once.
    pub fn is_near_limit(&self) -> bool {
        self.parts.pressure.near.load(Ordering::Relaxed)
    }

    /// Tasks of the process or of its neighbours wait for memory: the next tick returns all that is free.
    pub fn set_pressed(&self, pressed: bool) {
        self.parts.pressure.pressed.store(pressed, Ordering::Relaxed);
        if pressed {
            self.arena.note_scarcity(true);
        }
    }

    /// Bytes of free pages that are resident, and of slots in caches, as of the last tick.
    pub fn free_bytes(&self) -> usize {
        let dirty_bytes = self.arena.lock(&self.os).dirty_granules * crate::size::GRANULE;
        let counted = [&self.counters.cached_bytes, &self.counters.free_page_bytes];
        dirty_bytes + counted.map(|bytes| bytes.load(Ordering::Relaxed)).iter().sum::<usize>()
    }

    /// Whether a thread is looking right now.
    pub(super) fn is_looking(&self) -> bool {
        self.parts.pressure.looking.load(Ordering::Relaxed)
    }

    /// One look, by the thread that holds `looking`. True if a pass is worth its time.
    fn look(&self, fresh: usize) -> bool {
        let pressure = &self.parts.pressure;
        let unseen = fresh.saturating_sub(pressure.seen_at.load(Ordering::Relaxed));
        pressure.seen_at.store(fresh, Ordering::Relaxed);
        let (near, scarce, untouched, stride) = match self.os.headroom() {
            None => (false, false, 0, UNLIMITED_STRIDE.max(fresh / 4)),
            Some(Headroom { limit_bytes, left_bytes }) => {
                // Memory that was just handed out is charged when the program touches it, so it is subtracted here. At
                // each look half of it is forgotten: memory not touched by then will not be touched soon.
                let untouched = pressure.untouched.load(Ordering::Relaxed) / 2 + unseen;
                let left = left_bytes.saturating_sub(untouched);
                let stride = (left / 16).max(LEAST_STRIDE);
                (left < margin(limit_bytes), left < limit_bytes / 10, untouched, stride)
            }
        };
        self.arena.note_scarcity(scarce);
        pressure.untouched.store(untouched, Ordering::Relaxed);
        pressure.set_due_at(fresh + stride);
        let was_near = pressure.near.swap(near, Ordering::Relaxed);
        if !near {
            return false;
        }
        let now = self.os.now_ms();
        let worth =
            !was_near || self.freed_bytes() >= WORTH_BYTES || now >= pressure.next_pass_ms.load(Ordering::Relaxed);
        if worth {
            pressure.next_pass_ms.store(now + PATIENCE_MS, Ordering::Relaxed);
        }
        worth
    }

    /// Sleeps while another thread reads the limit, or makes a pass near it; one second at most. The caller has entered no
    /// cache.
    pub fn wait_for_relief(&self) {
        const TURNS: usize = 1000;
        for _ in 0..TURNS {
            // Relaxed: nothing that the other thread did is read here.
            let passing = self.is_near_limit() && self.purging.load(Ordering::Relaxed);
            if !passing && !self.is_looking() {
                return;
            }
            self.nap();
        }
    }

    /// Reads what a sandbox may forbid to read later: the number of processors, the limits.
    pub fn prepare_for_sandbox(&self) {
        self.shards();
        self.follow_limits();
    }

    /// Asks for what is limited, and follows a limit on address space that was lowered after the start;
    /// every pass does.
    pub(super) fn follow_limits(&self) {
        if self.os.scarce() == Scarce::Addresses {
            self.arena.lock(&self.os).follow_limit(&self.os);
        }
    }
}
