//! Loom: the return of extents and of large blocks' tails, which lets go of the arena's lock while
//! the kernel takes pages, against those who allocate, free a neighbour, or free the block itself.
//!
//! The shipped functions run over a kernel whose discard really empties pages, and which tells loom
//! of every page that it takes. Pages are of 16 KiB, so the unit of extents is four of them.

use super::super::Arena;
use super::{IDLE_TICKS, Purged};
use crate::base::lock::Wait;
use crate::os::fake::Fake;
use crate::size::GRANULE;
use crate::slab::loom_tests::{model, spawn};
use core::sync::atomic::{AtomicU32, Ordering};
use loom::sync::Arc;

const PAGE_BYTES: usize = 16 << 10;
/// The tick at which everything in a model becomes free.
const FREED: u32 = 16;
/// The tick of the purge.
const NOW: u32 = FREED + IDLE_TICKS;

impl Arena {
    /// For models of a fork, whose caller froze the arena: whether all extents are in their places.
    pub(crate) fn frozen_is_whole(&self) -> bool {
        // SAFETY: frozen by the caller; a model in which it is not is a data race, which loom reports.
        unsafe {
            self.extents.frozen_value(|extents| {
                extents.validate();
                extents.leaving_granules == 0
            })
        }
    }
}

struct World {
    os: Fake,
    arena: Arena,
}

impl World {
    fn new() -> Self {
        Self { os: Fake::new(PAGE_BYTES), arena: Arena::new() }
    }

    /// A block whose holder has written to both ends.
    fn take(&self, bytes: usize) -> usize {
        let block = self.arena.allocate_large(&self.os, bytes, 1, FREED, Wait::Yes).expect("memory");
        for place in Self::ends(block.start, bytes) {
            self.os.use_bytes(place as usize, size_of::<usize>());
            // SAFETY: the block is ours.
            unsafe {
                assert!(!block.zero || place.read() == 0, "not as clean as it said");
                place.write(block.start);
            }
        }
        block.start
    }

    /// The block still holds its contents, and is returned.
    fn put(&self, start: usize, bytes: usize, tick: u32) {
        self.check(start, bytes);
        let head = self.arena.granule_of(start).expect("in a region");
        // SAFETY: a live block, not used any more.
        assert!(unsafe { self.arena.free_large(&self.os, head, start, tick, Wait::Yes) });
    }

    fn check(&self, start: usize, bytes: usize) {
        for place in Self::ends(start, bytes) {
            self.os.use_bytes(place as usize, size_of::<usize>());
            // SAFETY: the block is live.
            assert_eq!(unsafe { place.read() }, start, "a live block lost its contents");
        }
    }

    fn ends(start: usize, bytes: usize) -> [*mut usize; 2] {
        [start, start + bytes - size_of::<usize>()].map(|place| place as *mut usize)
    }

    fn purge(&self) -> Purged {
        self.arena.purge(&self.os, NOW, false)
    }

    /// All blocks are back: one more purge leaves nothing resident, leaving, or in use.
    fn finish(&self) {
        self.arena.lock(&self.os).validate();
        self.arena.purge(&self.os, NOW, true);
        let extents = self.arena.lock(&self.os);
        assert_eq!(extents.validate(), 0, "something is in use for ever");
        assert_eq!((extents.large_bytes, extents.large_blocks), (0, 0));
        assert_eq!((extents.dirty_granules, extents.leaving_granules), (0, 0));
    }
}

/// An idle extent leaves. Meanwhile one of its size is asked for, and its neighbour becomes free: the
/// two must not merge before the pages are gone.
#[test]
fn extent_against_its_neighbours() {
    static FOUND: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
    model(|| {
        let world = Arc::new(World::new());
        let idle = world.take(2 * GRANULE);
        let neighbour = world.take(GRANULE);
        world.put(idle, 2 * GRANULE, FREED);
        let other = spawn({
            let world = world.clone();
            move || {
                world.put(neighbour, GRANULE, NOW);
                let taken = world.take(2 * GRANULE);
                world.check(taken, 2 * GRANULE);
                FOUND[usize::from(taken != idle)].fetch_add(1, Ordering::Relaxed);
                taken
            }
        });
        world.purge();
        let taken = other.join().unwrap();
        world.put(taken, 2 * GRANULE, NOW);
        world.finish();
    });
    for way in &FOUND {
        assert!(way.load(Ordering::Relaxed) > 0, "no schedule gave the extent out, or none had it away");
    }
}

/// The unused tail of a large block leaves while the block is freed and its memory asked for again.
#[test]
fn tail_against_free() {
    /// Used up to the first page of its second unit.
    const BYTES: usize = GRANULE + PAGE_BYTES;
    static RETURNED: AtomicU32 = AtomicU32::new(0);
    model(|| {
        let world = Arc::new(World::new());
        let whole = world.take(2 * GRANULE);
        world.put(whole, 2 * GRANULE, FREED);
        let block = world.take(BYTES);
        assert_eq!(block, whole, "from the dirty extent");
        let other = spawn({
            let world = world.clone();
            move || {
                world.put(block, BYTES, NOW);
                let taken = world.take(2 * GRANULE);
                world.put(taken, 2 * GRANULE, NOW);
            }
        });
        let purged = world.purge();
        other.join().unwrap();
        assert!(purged.returned_bytes == 0 || purged.returned_bytes == GRANULE - PAGE_BYTES);
        RETURNED.fetch_add(u32::from(purged.returned_bytes > 0), Ordering::Relaxed);
        world.finish();
    });
    assert!(RETURNED.load(Ordering::Relaxed) > 0, "no schedule returned the tail");
}
