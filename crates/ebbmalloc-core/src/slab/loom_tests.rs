//! Loom: the sweep, which lets go of the bin's lock while the kernel takes pages, against refills
//! and against frees that empty the slab.
//!
//! The shipped functions run over a kernel whose discard really empties pages, and which tells loom
//! of every page that it takes. The slots are of 32 KiB, on the largest pages: a slab has eight
//! slots on four pages, so a page is two slots.

use super::bin::{Bin, Returned, Supply};
use super::shape::{Shape, mask};
use super::sweep::Sweep;
use crate::arena::Arena;
use crate::base::exact::u32_of;
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::base::purged::Purged;
use crate::os::{Os, fake::Fake};
use crate::size::{CLASS, class_of};
use crate::slab::bin::Age;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread::JoinHandle;

/// The class of all models.
pub(crate) const CLASS_NUMBER: usize = class_of(32 << 10);
const PAGE_BYTES: usize = 64 << 10;
const SLOTS: usize = 8;

/// What is below a bin.
pub(crate) struct Ground {
    pub(crate) os: Fake,
    pub(crate) arena: Arena,
    pub(crate) metadata: Metadata,
    /// The purger's clock. Not loom's: reading it late is allowed.
    tick: AtomicU32,
}

/// A slot, as one thread hands it to another.
#[derive(Clone, Copy)]
pub(crate) struct Slot(pub(crate) *mut u8);

// SAFETY: a slot in use belongs to the thread that has its address.
unsafe impl Send for Slot {}

/// Runs `body` under every schedule. Its threads, and it itself, get stacks of 512 KiB: loom's own are
/// too small for the arrays of the structures under test.
pub(crate) fn model(body: impl Fn() + Sync + Send + Clone + 'static) {
    let mut builder = loom::model::Builder::new();
    // Loom's 1000 are used up by making a world.
    builder.max_branches = 10_000;
    builder.check(move || spawn(body.clone()).join().unwrap());
}

/// A thread of a model.
pub(crate) fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // Loom counts the stack in words.
    loom::thread::Builder::new().stack_size(1 << 16).spawn(body).unwrap()
}

impl Ground {
    pub(crate) fn new() -> Self {
        Self { os: Fake::new(PAGE_BYTES), arena: Arena::new(), metadata: Metadata::new(), tick: AtomicU32::new(16) }
    }

    pub(crate) fn supply(&self) -> Supply<'_, Fake> {
        Supply {
            os: &self.os,
            arena: &self.arena,
            metadata: &self.metadata,
            page_shift: self.os.page_bytes().trailing_zeros(),
            tick: self.tick.load(Ordering::Relaxed),
            aligned_shard: None,
        }
    }

    pub(crate) fn take(&self, bin: &Bin, count: usize) -> Vec<Slot> {
        let mut slots = vec![null_mut(); count];
        assert_eq!(bin.take(&self.supply(), CLASS_NUMBER, 0, &mut slots, Wait::Yes), count);
        slots.into_iter().map(|slot| self.write(Slot(slot))).collect()
    }

    pub(crate) fn put(&self, bin: &Bin, slots: &[Slot]) {
        slots.iter().for_each(|&slot| self.check(slot));
        let slots: Vec<_> = slots.iter().map(|slot| slot.0).collect();
        let mut found = Returned { slots: &slots, left: mask(0, u32_of(slots.len())) };
        // SAFETY: the slots came from this bin.
        assert!(unsafe { bin.put(&self.supply(), (CLASS_NUMBER, 0), &mut found, Age::Fresh, Wait::Yes) });
        assert_eq!(found.left, 0);
    }

    /// The holder of a slot writes its address at both ends.
    pub(crate) fn write(&self, slot: Slot) -> Slot {
        for place in Self::ends(slot) {
            self.os.use_bytes(place as usize, size_of::<usize>());
            // SAFETY: the slot is the caller's.
            unsafe { place.write(slot.0 as usize) };
        }
        slot
    }

    /// The holder of a slot finds what it wrote.
    pub(crate) fn check(&self, slot: Slot) {
        for place in Self::ends(slot) {
            self.os.use_bytes(place as usize, size_of::<usize>());
            // SAFETY: the slot is the caller's.
            assert_eq!(unsafe { place.read() }, slot.0 as usize, "a live slot lost its contents");
        }
    }

    fn ends(slot: Slot) -> [*mut usize; 2] {
        let first = slot.0.cast::<usize>();
        [first, first.wrapping_add(CLASS[CLASS_NUMBER].size as usize / size_of::<usize>() - 1)]
    }

    fn tick(&self, bin: &Bin) -> Purged {
        self.tick.fetch_add(1, Ordering::Relaxed);
        let supply = self.supply();
        let mut sweep = Sweep::new(&supply, false);
        sweep.bin(bin, CLASS_NUMBER);
        sweep.finish()
    }

    pub(crate) fn validate(&self, bin: &Bin) {
        bin.lock(&self.os).validate(Shape::new(CLASS_NUMBER, self.os.page_bytes().trailing_zeros()));
        self.arena.lock(&self.os).validate();
    }
}

/// A bin whose first page was free at one tick already; the slots on the three other pages of its
/// first slab; and `more` slots of a second slab.
fn page_about_to_leave(ground: &Ground, bin: &Bin, more: usize) -> (Vec<Slot>, Vec<Slot>) {
    let mut slots = ground.take(bin, SLOTS);
    let second = ground.take(bin, more);
    slots.sort_by_key(|slot| slot.0);
    let rest = slots.split_off(2);
    ground.put(bin, &slots);
    assert!(ground.tick(bin).more, "the page is seen, and stays for one tick");
    (rest, second)
}

#[test]
fn refill_against_return() {
    static RETURNED: AtomicU32 = AtomicU32::new(0);
    model(|| {
        let shared = Arc::new((Ground::new(), Bin::new()));
        let (others, _) = page_about_to_leave(&shared.0, &shared.1, 0);
        let refill = spawn({
            let shared = shared.clone();
            move || {
                let (ground, bin) = &*shared;
                let taken = ground.take(bin, 2);
                taken.iter().for_each(|&slot| ground.check(slot));
                taken
            }
        });
        let (ground, bin) = &*shared;
        let purged = ground.tick(bin);
        assert!(purged.returned_bytes == 0 || purged.returned_bytes == PAGE_BYTES);
        RETURNED.fetch_add(u32::from(purged.returned_bytes > 0), Ordering::Relaxed);
        let taken = refill.join().unwrap();
        ground.put(bin, &taken);
        ground.put(bin, &others);
        ground.validate(bin);
        assert_eq!(bin.lock(&ground.os).slots_out, 0);
    });
    assert!(RETURNED.load(Ordering::Relaxed) > 0, "no schedule returned the page");
}

#[test]
fn remote_free_against_release() {
    model(|| {
        let shared = Arc::new((Ground::new(), Bin::new()));
        // The second slab has room, so the first is released when it is whole.
        let (mut others, second) = page_about_to_leave(&shared.0, &shared.1, 1);
        let last = others.split_off(3);
        let freer = spawn({
            let shared = shared.clone();
            move || {
                shared.0.put(&shared.1, &others);
                shared.0.put(&shared.1, &last);
            }
        });
        let (ground, bin) = &*shared;
        ground.tick(bin);
        freer.join().unwrap();
        ground.validate(bin);
        assert_eq!(bin.lock(&ground.os).slots_out, 1);
        ground.put(bin, &second);
        // Nothing remains: the next ticks return all pages.
        for _ in 0..3 {
            ground.tick(bin);
        }
        assert_eq!(bin.lock(&ground.os).resident_pages, 0);
    });
}
