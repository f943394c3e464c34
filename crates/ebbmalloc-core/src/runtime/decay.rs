//! Decay times of arenas: how long memory may stay idle, and what follows for the purger and the heap.
//!
//! A decay time is an upper bound; without one ebbmalloc's own delay holds. The automatic arenas share
//! their extents, so the shortest of their times holds for all; an explicit arena has its own. The time
//! between ticks follows the shortest of all.

use super::instance::HEAP;
use super::purger::purger::PURGER;
use crate::base::exact::{isize_of, usize_of};
use crate::cache::bins::SHARDS;
use core::sync::atomic::{AtomicI64, Ordering};

/// Not set: ebbmalloc's own delay.
const OWN: i64 = i64::MIN;
/// Nothing stays idle for longer than this, however long somebody would let it: jemalloc's bound.
const MOST_MS: i64 = i64::MAX / 1_000_000;

/// The time set for each automatic arena, and for new arenas. Relaxed: followed by [`follow`].
static AUTOMATIC: [AtomicI64; SHARDS] = [const { AtomicI64::new(OWN) }; SHARDS];
static FUTURE: AtomicI64 = AtomicI64::new(OWN);

/// At boot: the setting for all arenas; `None` if it is not set, negative for ever.
pub(super) fn set_all(decay_ms: Option<i64>) {
    let decay_ms = decay_ms.unwrap_or(OWN);
    for automatic in &AUTOMATIC {
        automatic.store(decay_ms, Ordering::Relaxed);
    }
    FUTURE.store(decay_ms, Ordering::Relaxed);
    follow();
}

/// The time of an arena, in milliseconds; -1 for ever. `None` if there is none of that index.
pub fn of_arena(index: usize) -> Option<isize> {
    match HEAP.explicit_arena(index) {
        Some(arena) => Some(isize_of(arena.decay_ms())),
        None if index < HEAP.shards() => Some(known(&AUTOMATIC[index % SHARDS])),
        None => None,
    }
}

fn known(decay_ms: &AtomicI64) -> isize {
    match decay_ms.load(Ordering::Relaxed) {
        OWN => PURGER.idle_time_ms().map_or(-1, |ms| usize_of(ms).cast_signed()),
        said => isize_of(said),
    }
}

/// Sets the time of an arena; what must go at once is the caller's. False if there is none of that index, or it is no time.
pub fn set_of_arena(index: usize, decay_ms: isize) -> bool {
    let decay_ms = decay_ms as i64;
    if !is_time(decay_ms) {
        return false;
    }
    if let Some(arena) = HEAP.explicit_arena(index) {
        arena.set_decay_ms(decay_ms);
    } else if index < HEAP.shards() {
        AUTOMATIC[index % SHARDS].store(decay_ms, Ordering::Relaxed);
    } else {
        return false;
    }
    follow();
    true
}

/// Whether jemalloc takes it for a time.
pub fn is_time(decay_ms: i64) -> bool {
    (-1..=MOST_MS).contains(&decay_ms)
}

/// The time of arenas to come.
pub fn of_future() -> isize {
    known(&FUTURE)
}

/// Sets the time of arenas to come. False if it is none.
pub fn set_of_future(decay_ms: isize) -> bool {
    let is_time = is_time(decay_ms as i64);
    if is_time {
        FUTURE.store(decay_ms as i64, Ordering::Relaxed);
    }
    is_time
}

/// Puts the times into force.
pub fn follow() {
    // Until the shards are known, all places say the same.
    let said = AUTOMATIC.iter().map(|said| said.load(Ordering::Relaxed));
    let own_keeps = said.clone().all(|said| said < 0 && said != OWN);
    let explicit = HEAP.explicit_arenas().map(|arena| arena.decay_ms());
    let bound = said.filter(|&said| said >= 0).chain(explicit.filter(|&said| said > 0)).min();
    let keeps_all = own_keeps && HEAP.explicit_arenas().all(|arena| arena.decay_ms() < 0);
    HEAP.keep_own(own_keeps);
    PURGER.set_idle_bound(bound.map(|bound| bound.cast_unsigned()), keeps_all);
}
