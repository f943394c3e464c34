//! How a bin gets slabs: one at a time, or 2 MiB of them in a huge page, if it holds much and grows fast.

use super::bin::Supply;
use super::shape::Shape;
use super::slab::Slab;
use super::slabs::{Growth, Slabs};
use crate::arena::extents::Extents;
use crate::arena::granule::{Fill, Granule, Room};
use crate::arena::huge_pages::FRAME;
use crate::base::exact::u8_of;
use crate::base::lock::Wait;
use crate::os::Os;
use crate::size::{GRANULE, LEAD, leads};

/// A bin of so many bytes gets huge pages: less than 1.6 % of it is the rest of one, on average.
const LARGE_BIN: usize = 64 << 20;
/// It has to get so much without pages between two ticks.
const FAST: usize = 4 << 20;

/// Which slabs are made.
struct Order {
    shape: Shape,
    class: usize,
    shard: u8,
    wait: Wait,
}

impl Slabs {
    #[cold]
    pub(super) fn add_slab<O: Os>(
        &mut self,
        supply: &Supply<O>,
        shape: Shape,
        class: usize,
        shard: u8,
        wait: Wait,
    ) -> Option<Slab> {
        let granules = shape.class.granules;
        let order = &Order { shape, class, shard, wait };
        let mut extents = supply.arena.lock_if(supply.os, wait)?;
        if self.fills_frames(supply, shape)
            && let Some(slab) = self.add_frame(supply, order, &mut extents)
        {
            return Some(slab);
        }
        let head = supply.arena.allocate_slab(supply.os, &mut extents, u8_of(class), granules)?;
        // SAFETY: the granules are ours alone, for a slab of this class.
        unsafe {
            self.growth.slabs += usize::from((*head).fill == Fill::Clean);
            self.make_slab(supply, order, &mut extents, head)
        }
    }

    /// Makes a slab of granules that the arena gave for it. `None` if there is no memory for its bitmap; the arena has
    /// them again then.
    ///
    /// # Safety
    /// The granules are the caller's alone, and marked as those of a slab of the order's class.
    unsafe fn make_slab<O: Os>(
        &mut self,
        supply: &Supply<O>,
        order: &Order,
        extents: &mut Extents,
        head: *mut Granule,
    ) -> Option<Slab> {
        let Order { shape, class, shard, wait } = *order;
        let slab = Slab(head);
        // SAFETY: the granules are ours alone until we hand out a slot.
        unsafe {
            (*head).class = u8_of(class);
            (*head).shard = shard;
            (*head).room = Room::None;
            (*head).oldest = self.generation;
            let dirty = (*head).fill == Fill::Dirty;
            let is_led = supply.aligned_shard.is_some_and(|it| it != shard) && leads(class);
            let lead = if is_led { LEAD } else { 0 };
            if !slab.create(supply.os, supply.metadata, Shape { lead, ..shape }, dirty, wait) {
                let granules = shape.class.granules;
                supply.arena.free_slab(extents, head, granules, (*head).fill, supply.tick);
                return None;
            }
            self.slabs += 1;
            self.slabs_made += 1;
            self.resident_pages += (*head).resident.count_ones() as usize;
            if dirty {
                // Pages that no thread touches here would stay resident for nothing.
                self.list_for_visit(slab);
            }
            self.settle_room(slab, shape);
        }
        Some(slab)
    }

    /// Whether new slabs get a huge page together: this bin holds much already, and grows so fast that it will fill one
    /// before its pages are idle. Slabs with pages that no slot touches are left out: those pages would be returned.
    fn fills_frames<O: Os>(&mut self, supply: &Supply<O>, shape: Shape) -> bool {
        let slab_bytes = shape.class.granules as usize * GRANULE;
        if self.growth.tick != supply.tick {
            self.growth = Growth { tick: supply.tick, slabs: 0, ..self.growth };
        }
        let waste = slab_bytes - shape.class.slots as usize * shape.class.size as usize;
        self.slabs * slab_bytes >= LARGE_BIN && self.growth.slabs * slab_bytes >= FAST && waste < 1 << supply.page_shift
    }

    /// Makes a huge page's worth of slabs; returns the first.
    fn add_frame<O: Os>(&mut self, supply: &Supply<O>, order: &Order, extents: &mut Extents) -> Option<Slab> {
        let granules = order.shape.class.granules;
        let head =
            supply.arena.allocate_frame(supply.os, extents, u8_of(order.class), granules, &mut self.growth.frame)?;
        let mut first = None;
        for index in 0..FRAME / granules {
            let at = head.wrapping_add((index * granules) as usize);
            // SAFETY: the granules are ours alone, for slabs of this class.
            let slab = unsafe { self.make_slab(supply, order, extents, at) };
            first = first.or(slab);
        }
        self.growth.slabs += (FRAME / granules) as usize;
        first
    }
}
