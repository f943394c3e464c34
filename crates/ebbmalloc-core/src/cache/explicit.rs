//! Explicit arenas: regions and bins apart from the heap's own, made and ended on request. A block of one
//! is found by its address, in slow paths alone: it lies in no region of the heap's own arena.
//!
//! An explicit arena is an [`Arena`] with the bins of one shard. Everything below works on it as on the
//! heap's own, with a kernel that knows where its address space comes from
//! ([`OwnSpace`](crate::arena::own_space::OwnSpace)). Its memory is never unmade, only used again, so
//! that a look-up needs no lock.
//!
//! What always holds: slots of an explicit arena are only in caches that are bound to it. (Such a cache
//! may hold slots of the heap's own arena as well: the fast path of free does not ask.)

use super::cache::Cache;
use super::shard::{PaddedBin, Shard};
use crate::arena::Arena;
use crate::arena::granule::{Fill, Granule};
use crate::base::purged::Purged;
use crate::os::Os;
use crate::os::hooks::Borders;
use crate::os::hooks::ExtentHooks;
use crate::size::CLASSES;
use crate::slab::bin::{Bin, Supply};
use crate::slab::shape::Shape;
use crate::slab::slab::Slab;
use crate::slab::sweep::Sweep;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

/// Bytes of a name with its NUL.
pub const NAME_BYTES: usize = 32;

/// The name that a program gives an arena. The statistics show it; nothing here acts on it. Relaxed: nothing depends on the
/// bytes.
pub struct Name([AtomicU8; NAME_BYTES]);

impl Name {
    /// No name.
    pub const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; NAME_BYTES])
    }

    /// The name, with its NUL; empty if there is none.
    pub fn get(&self) -> [u8; NAME_BYTES] {
        core::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }

    /// Sets the name, as much of it as fits.
    pub fn set(&self, name: &[u8]) {
        for (at, place) in self.0.iter().enumerate() {
            let byte = name.get(at).filter(|_| at < NAME_BYTES - 1);
            place.store(byte.copied().unwrap_or(0), Ordering::Relaxed);
        }
    }
}

/// The shard of a slab that belongs to an explicit arena.
pub const EXPLICIT: u8 = u8::MAX;

/// See the module.
pub struct ExplicitArena {
    /// Its regions and extents.
    pub arena: Arena,
    bins: Shard,
    /// Its place among the explicit arenas.
    pub place: u16,
    pub(super) state: AtomicU8,
    /// The next that is free to be used again, plus one. Under the table's lock.
    pub(super) next_free: AtomicU32,
    /// The program's name for it.
    pub name: Name,
    /// See [`ExplicitArena::grow_limit`]. Relaxed.
    grow_limit: AtomicUsize,
    /// The program's hooks, or null. Written when the arena is made, and on request; release, which
    /// pairs with the acquire of an operation.
    pub(super) hooks: AtomicPtr<ExtentHooks>,
    /// How long memory may stay idle; see [`ExplicitArena::decay_ms`]. Relaxed.
    decay_ms: AtomicI64,
    /// Threads that are on it. Relaxed: a count.
    threads: AtomicUsize,
    /// Nothing was done with it since a pass that left nothing to do. Relaxed: a pass that misses an
    /// operation is followed by another.
    pub(super) quiet: AtomicBool,
    /// The tick at which an operation last purged it, where passes do not. Relaxed.
    tended: AtomicU32,
}

/// A [`ExplicitArena::grow_limit`] that is none.
pub(super) const UNLIMITED: usize = usize::MAX / 2 + 1;

pub(super) const UNUSED: u8 = 0;
pub(super) const LIVE: u8 = 1;
pub(super) const ENDING: u8 = 2;

impl ExplicitArena {
    /// Makes one, not live yet.
    ///
    /// # Safety
    /// `at` is good for it and the caller's alone.
    pub(super) unsafe fn make(at: NonNull<Self>, place: u16) {
        let at = at.as_ptr();
        // Part by part: a whole one would be much for a thread's stack.
        // SAFETY: the place is good for an arena and the caller's alone (fn contract).
        unsafe {
            (&raw mut (*at).arena).write(Arena::new());
            for class in 0..=CLASSES {
                (&raw mut (*at).bins).cast::<PaddedBin>().add(class).write(PaddedBin(Bin::new()));
            }
            (&raw mut (*at).place).write(place);
            (&raw mut (*at).state).write(AtomicU8::new(UNUSED));
            (&raw mut (*at).next_free).write(AtomicU32::new(0));
            (&raw mut (*at).name).write(Name::new());
            (&raw mut (*at).grow_limit).write(AtomicUsize::new(UNLIMITED));
            (&raw mut (*at).hooks).write(AtomicPtr::new(null_mut()));
            (&raw mut (*at).decay_ms).write(AtomicI64::new(0));
            (&raw mut (*at).threads).write(AtomicUsize::new(0));
            (&raw mut (*at).quiet).write(AtomicBool::new(true));
            (&raw mut (*at).tended).write(AtomicU32::new(0));
        }
    }

    /// The bin of a class.
    pub fn bin(&self, class: usize) -> &Bin {
        &self.bins[class].0
    }

    /// All bins.
    pub fn bins(&self) -> impl Iterator<Item = (usize, &Bin)> {
        (1..=CLASSES).map(|class| (class, self.bin(class)))
    }

    /// What [`Cache::home`] says of a cache that is on this arena.
    pub fn home(&self) -> u16 {
        self.place + 1
    }

    /// Whether it is there to be used.
    pub fn is_live(&self) -> bool {
        // Acquire pairs with the release of `create`.
        self.state.load(Ordering::Acquire) == LIVE
    }

    /// The program's hooks; null for none.
    pub fn hooks(&self) -> *mut ExtentHooks {
        self.hooks.load(Ordering::Acquire)
    }

    /// Sets other hooks. Existing address space is returned by them; `index` is the arena's as the program
    /// knows it.
    pub fn set_hooks<O: Os>(&self, os: &O, hooks: *mut ExtentHooks, index: u32) {
        self.arena.set_borders(os, Borders::new(hooks, index));
        self.hooks.store(hooks, Ordering::Release);
    }

    /// The longest that memory stays idle, in milliseconds: 0 goes at once, negative never.
    pub fn decay_ms(&self) -> i64 {
        self.decay_ms.load(Ordering::Relaxed)
    }

    /// Sets [`ExplicitArena::decay_ms`].
    pub fn set_decay_ms(&self, decay_ms: i64) {
        self.decay_ms.store(decay_ms, Ordering::Relaxed);
        self.quiet.store(false, Ordering::Relaxed);
    }

    /// The most address space that is reserved at a time beyond what is needed.
    pub fn grow_limit(&self) -> usize {
        self.grow_limit.load(Ordering::Relaxed)
    }

    /// Sets [`ExplicitArena::grow_limit`].
    pub fn set_grow_limit(&self, bytes: usize) {
        self.grow_limit.store(bytes, Ordering::Relaxed);
    }

    /// Threads that are on it.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Counts a thread more or less.
    pub fn count_threads(&self, change: isize) {
        self.threads.fetch_add(change.cast_unsigned(), Ordering::Relaxed);
    }

    /// In a child of fork, whose threads are fewer.
    pub fn recount_threads(&self, threads: usize) {
        self.threads.store(threads, Ordering::Relaxed);
    }

    /// Whether an operation should purge it: its hooks may not be called by the purger's thread, and it
    /// has not been looked at since the tick before `tick`; or nothing may stay idle.
    pub fn is_due(&self, tick: u32, freed: bool) -> bool {
        if self.decay_ms() == 0 {
            return freed;
        }
        self.decay_ms() > 0 && !self.hooks().is_null() && self.tended.swap(tick, Ordering::Relaxed) != tick
    }

    /// One pass over its slabs and extents; with `force` everything free goes.
    pub fn purge<'a, O: Os>(&'a self, supply: &'a Supply<'a, O>, force: bool) -> Purged {
        if self.quiet.swap(true, Ordering::Relaxed) {
            return Purged::default();
        }
        let mut purged = self.sweep(supply, force);
        purged.add(self.arena.purge(supply.os, supply.tick, force));
        if purged.more || purged.refused_bytes > 0 {
            self.quiet.store(false, Ordering::Relaxed);
        }
        purged
    }

    /// The pages inside live slabs. Apart, for the stack that it takes.
    #[inline(never)]
    fn sweep<'a, O: Os>(&'a self, supply: &'a Supply<'a, O>, force: bool) -> Purged {
        let mut sweep = Sweep::new(supply, force);
        for (class, bin) in self.bins() {
            sweep.bin(bin, class);
        }
        sweep.finish()
    }

    /// Takes every block back, wherever it is; then it is as new, but for its address space. `forget` is called
    /// with each large block before.
    ///
    /// # Safety
    /// No thread uses a block of this arena or calls anything for it meanwhile, no cache holds a slot of
    /// it, and no pass is under way.
    pub unsafe fn reset<O: Os>(&self, supply: &Supply<O>, forget: impl FnMut(*mut Granule)) {
        for (_, bin) in self.bins() {
            // SAFETY: all slabs are taken from the arena below.
            unsafe { bin.lock(supply.os).forget_slabs() };
        }
        // SAFETY: no thread uses a block or a slot of the arena (fn contract), and the bins know no slab any more.
        unsafe {
            let unmake = |head: *mut Granule| {
                let shape = Shape::new((*head).class as usize, supply.page_shift);
                Slab(head).destroy(supply.os, supply.metadata, shape, false);
                match (*head).resident {
                    0 => Fill::Clean,
                    _ => Fill::Dirty,
                }
            };
            self.arena.free_everything(supply.os, supply.tick, unmake, forget);
        }
        self.quiet.store(false, Ordering::Relaxed);
    }
}

impl Cache {
    /// The explicit arena that refills this cache: its place among them plus one; 0 for none.
    pub fn home(&self) -> u16 {
        self.home.load(Ordering::Relaxed)
    }

    /// Whether it is no thread's own.
    pub fn is_explicit(&self) -> bool {
        self.explicit
    }

    /// Whether slots of the heap's own arena may be kept here: not in an explicit cache that is on an
    /// explicit arena. (In a thread's own the fast path puts them without asking.)
    pub fn keeps_heap_slots(&self) -> bool {
        !self.explicit || self.home() == 0
    }

    /// Refills from another shard, or from an explicit arena, from now on.
    ///
    /// # Safety
    /// The cache is empty, and the caller has entered it or is the only one who uses it.
    pub unsafe fn settle(&self, shard: u8, home: u16) {
        self.shard.store(shard, Ordering::Relaxed);
        self.home.store(home, Ordering::Relaxed);
    }
}
