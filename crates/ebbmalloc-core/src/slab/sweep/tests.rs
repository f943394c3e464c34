//! What happens to a slab between the marking of its pages and their return.

use super::*;
use crate::arena::Arena;
use crate::base::exact::u32_of;
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::os::fake::Fake;
use crate::size::{CLASS, class_of};
use crate::slab::bin::Returned;

/// Five slots on 55 pages; nine more pages hold no slot.
const CLASS_NUMBER: usize = class_of(44 << 10);
const SLOTS: usize = 5;

struct Ground {
    os: Fake,
    arena: Arena,
    metadata: Metadata,
    bin: Bin,
}

impl Ground {
    fn supply(&self) -> Supply<'_, Fake> {
        Supply {
            os: &self.os,
            arena: &self.arena,
            metadata: &self.metadata,
            page_shift: 12,
            tick: 16,
            aligned_shard: None,
        }
    }

    /// The slots of so many slabs, slab by slab.
    fn take(&self, slabs: usize) -> Vec<*mut u8> {
        let mut slots = vec![null_mut(); slabs * SLOTS];
        let taken = self.bin.take(&self.supply(), CLASS_NUMBER, 0, &mut slots, Wait::Yes);
        assert_eq!(taken, slots.len());
        slots
    }

    fn put(&self, slots: &[*mut u8]) {
        for slots in slots.chunks(64) {
            let mut found = Returned { slots, left: mask(0, u32_of(slots.len())) };
            // SAFETY: the slots came from this bin.
            assert!(unsafe {
                let bin = (CLASS_NUMBER, 0);
                self.bin.put(&self.supply(), bin, &mut found, Age::Fresh, Wait::Yes)
            });
            assert_eq!(found.left, 0);
        }
        self.validate();
    }

    fn validate(&self) {
        self.bin.lock(&self.os).validate(Shape::new(CLASS_NUMBER, 12));
        self.arena.lock(&self.os).validate();
    }
}

#[test]
fn a_slab_that_is_whole_while_its_waste_leaves_stays() {
    assert_eq!(CLASS[CLASS_NUMBER].slots as usize, SLOTS);
    let ground = Ground { os: Fake::new(4096), arena: Arena::new(), metadata: Metadata::new(), bin: Bin::new() };
    // Slabs that are made of what others have left have all pages resident, those without a slot too.
    let slots = ground.take(3);
    ground.put(&slots);
    let slots = ground.take(3);
    let supply = ground.supply();
    let mut sweep = Sweep::new(&supply, true);
    sweep.bin(&ground.bin, CLASS_NUMBER);
    assert!(sweep.slab_count > 0, "no page without a slot leaves");
    // One slab has room, so that the others need not be kept; then they are whole.
    ground.put(&slots[..1]);
    ground.put(&slots[SLOTS..]);
    sweep.finish();
    ground.validate();
    // Nothing remains, and all of it can be used again.
    ground.put(&slots[1..SLOTS]);
    for _ in 0..2 {
        let mut sweep = Sweep::new(&supply, true);
        sweep.bin(&ground.bin, CLASS_NUMBER);
        sweep.finish();
        ground.validate();
    }
    let (slabs, out) = {
        let bin = ground.bin.lock(&ground.os);
        assert_eq!(bin.resident_pages, 0);
        (bin.slabs, bin.slots_out)
    };
    assert_eq!((slabs, out), (0, 0));
    let mut slots = ground.take(3);
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), 3 * SLOTS);
}
