//! Extents of granules: free ones, dirty and clean, split on allocation, merged with
//! their neighbours on free. Pure bookkeeping; where they come from is in `extents/room.rs`.
//!
//! Dirty and clean extents do not merge, so that a clean one is known to read as zero and a dirty
//! one is known to be worth returning; once returned, a dirty extent becomes clean and merges.
//! A dirty extent is a sequence of runs, each with the tick at which it became free, so merging with a fresh
//! neighbour does not make old memory young.

use super::granule::{Fill, Granule, Kind, STALE_INSIDE, inner_descriptors, mark_ends};
use super::region::Region;
use crate::base::best_fit::BestFit;
use crate::base::exact::u32_of;
use crate::base::list::{List, Walk};
use crate::os::Os;
use crate::os::hooks::Borders;
use crate::size::GRANULE;
use crate::size::large::LargeCounts;

mod room;

/// Most regions. Unless address space is limited, the first region holds everything.
pub const REGIONS: usize = 64;
/// A clean extent of this many granules has whole pages of descriptors inside, where pages are of
/// 4 KiB.
const STALE_GRANULES: u32 = 2 * u32_of(4096 / size_of::<Granule>());

/// The free extents of an arena; the arena's lock guards them.
pub struct Extents {
    pub(super) regions: [Region; REGIONS],
    pub(super) count: usize,
    pub(super) dirty: BestFit<Granule>,
    pub(super) clean: BestFit<Granule>,
    /// Dirty extents, in no order.
    pub(super) aging: Walk<Granule>,
    /// Clean extents whose inner descriptors fill whole pages and may be resident.
    pub(super) stale: Walk<Granule>,
    /// Large blocks with resident tails.
    pub(super) tails: Walk<Granule>,
    /// Clean extents that were given up; see `scarcity`.
    pub(super) given: List<Granule>,
    pub(super) given_runs: usize,
    /// Granules in them.
    pub given_granules: usize,
    /// Granules in dirty extents.
    pub dirty_granules: usize,
    /// Granules in clean extents.
    pub clean_granules: usize,
    /// Granules that are leaving.
    pub leaving_granules: usize,
    /// Bytes of descriptors inside clean extents whose pages were returned.
    pub(super) hollow_bytes: usize,
    /// The kernel's page size, once there is a region.
    pub(super) page_bytes: usize,
    /// Bytes in use in large blocks.
    pub large_bytes: usize,
    /// Large blocks.
    pub large_blocks: usize,
    /// Live large blocks by class, and the number ever made.
    pub large_counts: LargeCounts,
    pub(super) limited: bool,
    /// The program's hooks, which have to know where units begin and end.
    pub(super) borders: Borders,
    /// Granules that were handed out clean and not counted yet.
    pub(super) fresh_granules: usize,
}

// SAFETY: the descriptors at the pointers belong to the thread that holds the arena's lock.
unsafe impl Send for Extents {}

impl Extents {
    /// No memory yet.
    pub const fn new() -> Self {
        Self {
            regions: [Region::NONE; REGIONS],
            count: 0,
            dirty: BestFit::new(),
            clean: BestFit::new(),
            aging: Walk::new(),
            stale: Walk::new(),
            tails: Walk::new(),
            given: List::new(),
            given_runs: 0,
            given_granules: 0,
            dirty_granules: 0,
            clean_granules: 0,
            leaving_granules: 0,
            hollow_bytes: 0,
            page_bytes: 0,
            large_bytes: 0,
            large_blocks: 0,
            large_counts: LargeCounts::NONE,
            limited: false,
            borders: Borders::NONE,
            fresh_granules: 0,
        }
    }

    /// Takes `len` granules aligned to `align` granules (a power of two): the best fit among the
    /// dirty extents, whose pages are resident already, then among the clean ones, then fresh
    /// address space. The head's `fill` says what the pages hold; its `kind` is the caller's to set.
    ///
    /// Neither is more than the granules of [`BLOCK_MAX`](crate::size::BLOCK_MAX).
    pub fn allocate<O: Os>(&mut self, os: &O, len: u32, align: u32) -> Option<*mut Granule> {
        let padded = len + (align - 1);
        for fill in [Fill::Dirty, Fill::Clean] {
            let tree = if fill == Fill::Dirty { &self.dirty } else { &self.clean };
            // SAFETY: we hold the lock (`&mut self`); the tree holds heads of free extents.
            let found = unsafe { tree.best_fit(padded) };
            if !found.is_null() {
                // SAFETY: the tree holds heads of free extents, and `found` has at least `len + align - 1` granules.
                return Some(unsafe { self.carve(found, len, align) });
            }
        }
        if self.given_runs > 0 && self.take_back(os, padded) {
            // SAFETY: we hold the lock (`&mut self`); the tree holds heads of free extents, and `found` has at least
            // `len + align - 1` granules.
            unsafe {
                let found = self.clean.best_fit(padded);
                if !found.is_null() {
                    return Some(self.carve(found, len, align));
                }
            }
        }
        let head = self.grow(os, len, align)?;
        self.fresh_granules += len as usize;
        Some(head)
    }

    /// Takes `len` granules out of the free extent `extent`, at the first aligned place.
    ///
    /// # Safety
    /// `extent` is the head of a free extent long enough.
    unsafe fn carve(&mut self, extent: *mut Granule, len: u32, align: u32) -> *mut Granule {
        // SAFETY: `extent` is a free extent that is long enough (fn contract), so the aligned part lies inside it.
        unsafe {
            let base = (*extent).base;
            let aligned = base.next_multiple_of(align as usize * GRANULE);
            self.carve_at(extent, u32_of((aligned - base) / GRANULE), len)
        }
    }

    /// Takes `len` granules out of the free extent `extent`, `skip` granules from its start.
    ///
    /// # Safety
    /// `extent` is the head of a free extent of at least `skip + len` granules.
    pub(super) unsafe fn carve_at(&mut self, extent: *mut Granule, skip: u32, len: u32) -> *mut Granule {
        // SAFETY: the extent is free and long enough (fn contract), so all parts stay inside it; the lock is held
        // (`&mut self` comes from the lock's guard).
        unsafe {
            let (start, total) = ((*extent).base, (*extent).len as usize);
            let skipped = skip as usize;
            self.split(start, skipped, total);
            let start = start + skipped * GRANULE;
            self.split(start, len as usize, total - skipped);
            self.cut(extent, skip, len)
        }
    }

    /// [`Extents::carve_at`], with the borders updated.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn cut(&mut self, extent: *mut Granule, skip: u32, len: u32) -> *mut Granule {
        // SAFETY: the extent is free and long enough (contract of `carve_at`), so all parts stay inside it; the lock
        // is held (`&mut self` comes from the lock's guard).
        unsafe {
            self.unlink(extent);
            let (total, fill, oldest) = ((*extent).len, (*extent).fill, (*extent).oldest);
            let stale = (*extent).flags & STALE_INSIDE;
            let aligned = (*extent).base + skip as usize * GRANULE;
            let head = extent.wrapping_add(skip as usize);
            (*head).base = aligned;
            if fill == Fill::Dirty {
                split_runs(extent, skip);
                if skip + len < total {
                    split_runs(head, len);
                }
            }
            if skip > 0 {
                self.link(extent, skip, fill, oldest, stale);
            }
            if skip + len < total {
                let rest = head.wrapping_add(len as usize);
                (*rest).base = aligned + len as usize * GRANULE;
                self.link(rest, total - skip - len, fill, oldest, stale);
            }
            (*head).len = len;
            (*head).fill = fill;
            if fill == Fill::Clean {
                self.fresh_granules += len as usize;
            }
            head
        }
    }

    /// Takes back the `len` granules from `head` on. Dirty ones get `tick` as their stamp.
    ///
    /// # Safety
    /// They came from [`Extents::allocate`] (a part is allowed, with its `base` set), no thread uses them
    /// any more, and if `fill` is clean they all read as zero and are not resident.
    pub unsafe fn free(&mut self, head: *mut Granule, len: u32, fill: Fill, tick: u32) {
        // SAFETY: `free_as` asks for the same: the granules are the caller's, unused, and as clean as it says.
        unsafe { self.free_as(head, len, fill, tick, STALE_INSIDE) }
    }

    /// [`Extents::free`]; `stale` is `STALE_INSIDE` if the descriptors between the first and the last
    /// may be resident.
    unsafe fn free_as(&mut self, mut head: *mut Granule, mut len: u32, fill: Fill, tick: u32, mut stale: u8) {
        // SAFETY: the granules are the caller's (fn contract); the neighbours are inside the region as checked, where every
        // first and last granule of a unit has a true kind and head.
        unsafe {
            let mut oldest = tick;
            if fill == Fill::Dirty {
                (*head).stamp = tick;
                (*head).free = len;
            }
            (*head).kind = Kind::Free;
            let (has_before, has_after) = self.neighbours(head, len);
            if has_after {
                let after = head.wrapping_add(len as usize);
                if (*after).kind == Kind::Free && (*after).fill == fill && self.may_join(head, len, (*after).len) {
                    self.unlink(after);
                    oldest = older(fill, oldest, (*after).oldest);
                    len += (*after).len;
                    stale = STALE_INSIDE;
                }
            }
            if has_before {
                let last = head.wrapping_sub(1);
                let before = (*last).head;
                if (*last).kind == Kind::Free && (*before).fill == fill && self.may_join(before, (*before).len, len) {
                    self.unlink(before);
                    oldest = older(fill, oldest, (*before).oldest);
                    len += (*before).len;
                    stale = STALE_INSIDE;
                    head = before;
                }
            }
            self.link(head, len, fill, oldest, stale);
        }
    }

    /// Whether the unit of `len` granules at `head` and the `more` after it may become one.
    ///
    /// # Safety
    /// `head` is a valid descriptor.
    pub(super) unsafe fn may_join(&self, head: *mut Granule, len: u32, more: u32) -> bool {
        // SAFETY: `head` is a valid descriptor (fn contract), and the arena's lock is held (`&self` comes from the
        // guard).
        let start = unsafe { (*head).base };
        self.borders.merge(start, len as usize * GRANULE, more as usize * GRANULE)
    }

    /// [`Borders::split`] of a unit of `len` granules after the first `first`.
    pub(super) fn split(&self, start: usize, first: usize, len: usize) -> bool {
        self.borders.split(start, first * GRANULE, len * GRANULE)
    }

    /// The same of a unit whose head is `head`.
    ///
    /// # Safety
    /// `head` is a valid descriptor.
    pub(super) unsafe fn split_unit(&self, head: *mut Granule, first: u32, len: u32) -> bool {
        // SAFETY: `head` is a valid descriptor (fn contract), whose base the arena's lock keeps (`&self` comes from the
        // guard).
        self.split(unsafe { (*head).base }, first as usize, len as usize)
    }

    /// Whether there is a granule before and one after the `len` granules at `head`.
    ///
    /// # Safety
    /// `head` is a valid descriptor.
    pub(super) unsafe fn neighbours(&self, head: *mut Granule, len: u32) -> (bool, bool) {
        // SAFETY: `head` is a valid descriptor (fn contract), and the arena's lock is held (`&self` comes from the
        // guard).
        let base = unsafe { (*head).base };
        let region =
            self.regions[..self.count].iter().find(|region| base.wrapping_sub(region.base) < region.granules * GRANULE);
        region.map_or((false, false), |region| {
            let index = (base - region.base) / GRANULE;
            (index > region.abandoned, index + (len as usize) < region.top)
        })
    }

    /// Enters a free extent: marks its ends and puts it into its tree. `stale` is
    /// `STALE_INSIDE` if the descriptors inside may be resident.
    unsafe fn link(&mut self, head: *mut Granule, len: u32, fill: Fill, oldest: u32, stale: u8) {
        // SAFETY: called only with granules that belong to no other thread, under the lock.
        unsafe {
            if fill == Fill::Dirty {
                return self.link_dirty(head, len, oldest, Walk::push);
            }
            mark_free(head, len, fill, oldest);
            self.clean.insert(head);
            self.clean_granules += len as usize;
            if stale != 0 && len >= STALE_GRANULES {
                (*head).flags = STALE_INSIDE;
                self.stale.push(head);
            }
            self.hollow_bytes += self.hollow_inside(head);
        }
    }

    /// Bytes of descriptors inside a clean extent whose pages were returned.
    ///
    /// # Safety
    /// `head` is the head of a clean extent, and its flags are true.
    unsafe fn hollow_inside(&self, head: *mut Granule) -> usize {
        // SAFETY: `head` is the head of a clean extent (fn contract), which only the holder of the lock changes.
        let (len, flags) = unsafe { ((*head).len, (*head).flags) };
        if len < STALE_GRANULES || flags & STALE_INSIDE != 0 {
            return 0;
        }
        inner_descriptors(head, len, self.page_bytes).len()
    }

    /// The same for a dirty extent; `push` says when a purge under way looks at it.
    pub(super) unsafe fn link_dirty(
        &mut self,
        head: *mut Granule,
        len: u32,
        oldest: u32,
        push: unsafe fn(&mut Walk<Granule>, *mut Granule),
    ) {
        // SAFETY: the granules are the caller's and on no list, as for `link`; the lock is held (`&mut self` comes
        // from the guard).
        unsafe {
            mark_free(head, len, Fill::Dirty, oldest);
            self.dirty.insert(head);
            push(&mut self.aging, head);
            self.dirty_granules += len as usize;
        }
    }

    /// Puts a clean extent back whose inner descriptors were returned.
    ///
    /// # Safety
    /// As for [`Extents::free`].
    pub(super) unsafe fn free_hollow(&mut self, head: *mut Granule, len: u32, tick: u32) {
        // SAFETY: `free_as` asks for the same as this function; the descriptors inside were returned, so they are not
        // stale.
        unsafe { self.free_as(head, len, Fill::Clean, tick, 0) }
    }

    /// Takes a free extent out of its tree.
    pub(super) unsafe fn unlink(&mut self, head: *mut Granule) {
        // SAFETY: called only with heads of free extents, under the lock.
        unsafe {
            let len = (*head).len as usize;
            if (*head).fill == Fill::Dirty {
                self.dirty.remove(head);
                self.aging.remove(head);
                self.dirty_granules -= len;
            } else {
                self.clean.remove(head);
                if (*head).flags & STALE_INSIDE != 0 {
                    self.stale.remove(head);
                }
                self.hollow_bytes -= self.hollow_inside(head);
                self.clean_granules -= len;
            }
        }
    }
}

/// Makes a run of a dirty extent begin `at` granules after `head`, where one begins.
///
/// # Safety
/// `head` is the first granule of a run in a dirty extent with at least `at + 1` granules after and with it, and the
/// caller holds the arena's lock.
unsafe fn split_runs(mut head: *mut Granule, mut at: u32) {
    // SAFETY: `head` starts a run under the arena's lock (fn contract); runs follow each other without a gap, so each step stays in the extent.
    unsafe {
        while at > 0 {
            let (len, stamp) = ((*head).free, (*head).stamp);
            let next = head.wrapping_add(len.min(at) as usize);
            if at < len {
                (*head).free = at;
                (*next).free = len - at;
                (*next).stamp = stamp;
                return;
            }
            at -= len;
            head = next;
        }
    }
}

/// Marks the `len` granules at `head` as a free extent.
///
/// # Safety
/// They belong to no other thread, and the caller holds the arena's lock.
unsafe fn mark_free(head: *mut Granule, len: u32, fill: Fill, oldest: u32) {
    // SAFETY: the granules belong to no other thread, and the lock is held (fn contract), so both ends may be written.
    unsafe {
        mark_ends(head, len, Kind::Free);
        (*head).fill = fill;
        (*head).oldest = oldest;
        (*head).flags = 0;
    }
}

/// The `oldest` of two neighbours that merge.
fn older(fill: Fill, fresh: u32, neighbour: u32) -> u32 {
    match fill {
        Fill::Dirty => fresh.min(neighbour),
        Fill::Clean => fresh,
    }
}

#[cfg(test)]
mod validate;
