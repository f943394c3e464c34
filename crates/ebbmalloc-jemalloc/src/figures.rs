//! The figures in detail as of the last time that they were taken: what `stats.*` reads, so that what is
//! read one by one belongs together.

use ebbmalloc_core::base::lock::{Lock, Rank};
use ebbmalloc_core::cache::bins::SHARDS;
use ebbmalloc_core::cache::cache::Cache;
use ebbmalloc_core::cache::explicit::ExplicitArena;
use ebbmalloc_core::heap::figures::ArenaFigures;
use ebbmalloc_core::os::Os;
use ebbmalloc_core::runtime::face::{HEAP, boot_ms, visit_cache};

/// Under a lock, since the thread that takes the figures writes all of them.
struct Taken {
    arenas: [ArenaFigures; SHARDS],
    /// The explicit arena that was asked for last, its place in the table plus one, and the epoch.
    explicit: ArenaFigures,
    explicit_of: (u16, u64),
    /// What explicit arenas that ended had done.
    ended: ArenaFigures,
    /// Whether any has.
    ended_any: bool,
    /// All of them.
    merged: ArenaFigures,
    /// How many of `arenas` there are.
    count: usize,
    /// When, by the monotonic clock.
    taken_ms: u64,
    /// How often.
    epoch: u64,
}

static TAKEN: Lock<Taken> = Lock::new(
    Rank::Figures,
    Taken {
        arenas: [ArenaFigures::NONE; SHARDS],
        explicit: ArenaFigures::NONE,
        explicit_of: (0, 0),
        ended: ArenaFigures::NONE,
        ended_any: false,
        merged: ArenaFigures::NONE,
        count: 0,
        taken_ms: 0,
        epoch: 0,
    },
);

/// Which arenas are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// One.
    One(usize),
    /// All together.
    All,
    /// The destroyed arenas, together.
    Destroyed,
}

/// Takes the figures.
pub fn refresh() {
    // The lock first, and the cache inside it: a fork waits for those who are inside.
    let mut taken = TAKEN.lock(&HEAP.os);
    let taken = &mut *taken;
    visit_cache(|own| take(taken, own));
}

fn take(taken: &mut Taken, own: Option<&Cache>) {
    taken.count = HEAP.figures(own, &mut taken.arenas);
    taken.merged = ArenaFigures::NONE;
    for arena in &taken.arenas[..taken.count] {
        taken.merged.add(arena);
    }
    for arena in HEAP.explicit_arenas() {
        HEAP.explicit_figures(own, arena, &mut taken.explicit);
        taken.merged.add(&taken.explicit);
    }
    taken.explicit_of = (0, 0);
    taken.taken_ms = HEAP.os.now_ms();
    taken.epoch += 1;
}

/// How often the figures were taken: once at the first question.
pub fn epoch() -> u64 {
    with(Which::All, |_| ());
    TAKEN.lock(&HEAP.os).epoch
}

/// Calls `work` with the figures of some arenas as they were taken last; `None` where there are no such
/// arenas.
pub fn with<R>(which: Which, work: impl FnOnce(&ArenaFigures) -> R) -> Option<R> {
    let mut taken = TAKEN.lock(&HEAP.os);
    let taken = &mut *taken;
    if taken.epoch == 0 {
        visit_cache(|own| take(taken, own));
    }
    match which {
        Which::All => Some(work(&taken.merged)),
        Which::One(index) if index < taken.count => Some(work(&taken.arenas[index])),
        Which::One(index) => {
            let arena = HEAP.explicit_arena(index)?;
            if taken.explicit_of != (arena.home(), taken.epoch) {
                visit_cache(|own| {
                    HEAP.explicit_figures(own, arena, &mut taken.explicit);
                });
                taken.explicit_of = (arena.home(), taken.epoch);
            }
            Some(work(&taken.explicit))
        }
        Which::Destroyed => Some(work(&taken.ended)),
    }
}

/// Adds what an explicit arena has done, which is about to end, to the ended ones.
pub fn note_end(arena: &ExplicitArena) {
    let mut taken = TAKEN.lock(&HEAP.os);
    let taken = &mut *taken;
    visit_cache(|own| HEAP.explicit_figures(own, arena, &mut taken.explicit));
    taken.explicit_of = (0, 0);
    taken.ended_any = true;
    let Taken { explicit, ended, .. } = taken;
    ended.add(explicit);
}

/// Whether an explicit arena has ended.
pub fn any_ended() -> bool {
    TAKEN.lock(&HEAP.os).ended_any
}

/// How long the process had run when the figures were taken, in milliseconds.
pub fn uptime_ms() -> u64 {
    let taken = TAKEN.lock(&HEAP.os).taken_ms;
    taken.saturating_sub(boot_ms())
}

/// In the child of a fork: figures that were just being taken are taken again by the next question.
///
/// # Safety
/// The process has no other thread.
pub unsafe fn reset() {
    // SAFETY: the process has no other thread that could hold the lock (fn contract).
    unsafe { TAKEN.reset() }
}
