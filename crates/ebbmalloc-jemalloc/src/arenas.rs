//! Arenas by jemalloc's indices: automatic ones (a shard of the bins each) first, then explicit ones.
//!
//! The automatic arenas share their extents and the purger: memory returned from one is returned from all.

use crate::default_hooks::DEFAULT_HOOKS;
use crate::figures;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use ebbmalloc_core::base::exact::{isize_of, u32_of};
use ebbmalloc_core::cache::bins::SHARDS;
use ebbmalloc_core::cache::explicit::ExplicitArena;
use ebbmalloc_core::cache::explicit::Name;
use ebbmalloc_core::heap::explicit_life::Moved;
use ebbmalloc_core::os::Os;
use ebbmalloc_core::os::hooks::ExtentHooks;
use ebbmalloc_core::runtime::conf::Id;
use ebbmalloc_core::runtime::face::{self, HEAP, with_access};
use ebbmalloc_core::runtime::{self, decay, in_force};

/// Turns of [`pause`] that a pass under way, or the purger's hold on a cache, is waited for: more than a second.
const PATIENCE: usize = 1_200;
/// Turns that only yield.
const YIELDS: usize = 200;

/// Lets the purger go on. It needs microseconds, unless the kernel has preempted it: then a millisecond each turn.
fn pause(turn: usize) {
    if turn < YIELDS {
        HEAP.os.yield_now();
    } else {
        HEAP.os.wait(&AtomicU32::new(0), 0, Some(1));
    }
}

/// The program's names for the automatic arenas.
static NAMES: [Name; SHARDS] = [const { Name::new() }; SHARDS];

/// How many indices there are: the automatic arenas, and all explicit ones that there have been at a time.
pub fn count() -> usize {
    HEAP.arena_indices()
}

/// The automatic ones of them.
pub fn automatic() -> usize {
    HEAP.shards()
}

/// Whether the index is that of an arena that is there.
pub fn is_there(index: usize) -> bool {
    index < automatic() || HEAP.explicit_arena(index).is_some()
}

/// Makes an explicit arena with these hooks (null for none); its index. `None` without memory, or when
/// there are as many as there can be.
pub fn create(hooks: *mut ExtentHooks) -> Option<usize> {
    let arena = HEAP.create_arena(plain(hooks), decay::of_future() as i64)?;
    arena.name.set(b"");
    decay::follow();
    Some(HEAP.index_of(arena))
}

/// Null for the table of the default hooks: as without any.
fn plain(hooks: *mut ExtentHooks) -> *mut ExtentHooks {
    if core::ptr::eq(hooks, &raw const DEFAULT_HOOKS.0) { null_mut() } else { hooks }
}

/// The arena that `address` lies in.
pub fn lookup(address: usize) -> Option<usize> {
    HEAP.arena_of(address)
}

/// The arena that the calling thread is on.
pub fn of_thread() -> usize {
    // A thread's first request gives it a cache.
    with_access(|_| ());
    with_access(|access| HEAP.arena_of_thread(access))
}

/// Puts the calling thread on another arena. False if there is none of that index; a thread that has no
/// cache (it ends, or a signal handler runs in it) stays where it is.
pub fn move_thread(index: usize) -> bool {
    for turn in 0..PATIENCE {
        match with_access(|access| HEAP.move_cache(access, index)) {
            Moved::Done | Moved::NoCache => return true,
            Moved::NoArena => return false,
            Moved::Busy => pause(turn),
        }
    }
    false
}

/// Returns the free memory of an arena. False if there is none of that index.
pub fn purge(index: usize) -> bool {
    if index < automatic() {
        runtime::trim();
        return true;
    }
    let Some(arena) = HEAP.explicit_arena(index) else {
        return false;
    };
    purge_explicit(arena, true);
    true
}

/// Sets the decay time of an arena, in milliseconds; with 0 its free memory is returned at once. False if there is none
/// of that index, or it is no time.
pub fn set_decay(index: usize, decay_ms: isize) -> bool {
    if !decay::set_of_arena(index, decay_ms) {
        return false;
    }
    if decay_ms == 0 {
        if let Some(arena) = HEAP.explicit_arena(index) {
            purge_explicit(arena, true);
        }
        face::return_extents();
    }
    true
}

/// Returns what has been idle for long enough in an arena. False if there is none of that index. The
/// purger does so anyway, unless the arena has hooks.
pub fn decay(index: usize) -> bool {
    if index < automatic() {
        face::tick_if_due();
        return true;
    }
    let Some(arena) = HEAP.explicit_arena(index) else {
        return false;
    };
    match arena.decay_ms() {
        0 => purge_explicit(arena, true),
        1.. => purge_explicit(arena, false),
        _ => {}
    }
    true
}

/// Within the thread's cache, as every pass by a thread of the program's.
fn purge_explicit(arena: &ExplicitArena, force: bool) {
    for turn in 0..PATIENCE {
        if with_access(|_| HEAP.purge_arena(arena, force)) {
            return;
        }
        pause(turn);
    }
}

/// Takes back every block of an explicit arena. False if there is none of that index.
///
/// # Safety
/// No block of it is in use any more, and no call for it is running.
pub unsafe fn reset(index: usize) -> bool {
    let Some(arena) = HEAP.explicit_arena(index) else {
        return false;
    };
    // SAFETY: no block of it is in use and no call for it is running (fn contract).
    with_access(|access| unsafe { HEAP.reset_arena(access, arena) });
    true
}

/// Ends an explicit arena; its index is given to another. False if there is none of that index, or threads
/// are on it.
///
/// # Safety
/// As for [`reset`].
pub unsafe fn destroy(index: usize) -> bool {
    let Some(arena) = HEAP.explicit_arena(index) else {
        return false;
    };
    if arena.threads() > 0 {
        return false;
    }
    // SAFETY: the contract is that of `reset`.
    unsafe { reset(index) };
    figures::note_end(arena);
    // SAFETY: no block of it is in use (contract of `reset`), and it was reset just now.
    let ended = with_access(|access| unsafe { HEAP.end_arena(access, arena) });
    decay::follow();
    ended
}

/// A [`muzzy`] that was not written yet: the setting holds.
const UNSET: i64 = i64::MIN;
static MUZZY: AtomicI64 = AtomicI64::new(UNSET);

/// The time between lazily and really returned, which nothing here needs: one for all arenas.
pub fn muzzy() -> isize {
    match MUZZY.load(Ordering::Relaxed) {
        UNSET => isize_of(in_force::number(Id::MuzzyDecayMs).cast_signed()),
        said => isize_of(said),
    }
}

/// Sets [`muzzy`]. False if it is no time.
pub fn set_muzzy(decay_ms: isize) -> bool {
    let is_time = decay::is_time(decay_ms as i64);
    if is_time {
        MUZZY.store(decay_ms as i64, Ordering::Relaxed);
    }
    is_time
}

/// The hooks of an arena; the table of the default ones where a program set none.
pub fn hooks(index: usize) -> Option<*mut ExtentHooks> {
    let hooks = match HEAP.explicit_arena(index) {
        Some(arena) => arena.hooks(),
        None if index < automatic() => null_mut(),
        None => return None,
    };
    Some(if hooks.is_null() { (&raw const DEFAULT_HOOKS.0).cast_mut() } else { hooks })
}

/// Sets the hooks of an explicit arena. False for any other.
///
/// # Safety
/// The hooks are as jemalloc's interface wants them, and outlive the arena; existing address space
/// may be returned by them.
pub unsafe fn set_hooks(index: usize, hooks: *mut ExtentHooks) -> bool {
    match HEAP.explicit_arena(index) {
        Some(arena) => {
            arena.set_hooks(&HEAP.os, plain(hooks), u32_of(HEAP.index_of(arena)));
            true
        }
        None => false,
    }
}

/// The most address space that an explicit arena reserves at a time, in bytes; all automatic ones reserve
/// at once what they will ever need.
pub fn grow_limit(index: usize) -> Option<usize> {
    match HEAP.explicit_arena(index) {
        Some(arena) => Some(arena.grow_limit()),
        None => (index < automatic()).then_some(usize::MAX / 2 + 1),
    }
}

/// Sets [`grow_limit`]. False where there is no explicit arena, or a page is more.
pub fn set_grow_limit(index: usize, bytes: usize) -> bool {
    match HEAP.explicit_arena(index) {
        Some(arena) if bytes >= HEAP.os.page_bytes() => {
            arena.set_grow_limit(bytes);
            true
        }
        _ => false,
    }
}

/// The program's name for an arena.
pub fn name(index: usize) -> Option<&'static Name> {
    match HEAP.explicit_arena(index) {
        Some(arena) => Some(&arena.name),
        None if index < automatic() => NAMES.get(index),
        None => None,
    }
}

/// Makes an explicit cache; its index. `None` without memory, or when there are as many as there can be.
pub fn create_cache() -> Option<usize> {
    with_access(|_| ());
    with_access(|access| HEAP.create_cache(access))
}

/// Empties an explicit cache. False if there is none of that index.
pub fn flush_cache(index: usize) -> bool {
    with_access(|_| HEAP.flush_cache(index))
}

/// Ends an explicit cache. False if there is none of that index.
///
/// # Safety
/// It is not in use, and not named again.
pub unsafe fn destroy_cache(index: usize) -> bool {
    // SAFETY: the cache is not in use, and not named again (fn contract).
    with_access(|_| unsafe { HEAP.end_cache(index) })
}
