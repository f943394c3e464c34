//! Returns idle extents and the tails of large blocks to the kernel. Also the descriptors inside long clean extents: only
//! the first and the last descriptor of an extent are used.
//!
//! Under the lock an idle extent is taken out of the trees and marked as leaving. Without the lock the kernel is called.
//! Under the lock the extent is put back into the trees, as clean. So no lock is held during the system call,
//! and no request gets a page that is about to be emptied.

use super::Arena;
use super::extents::Extents;
use super::granule::{FREE_PENDING, Fill, Granule, Kind, TAIL_LEAVING, TAIL_LISTED, inner_descriptors, mark_ends};
use crate::base::exact::usize_of;
use crate::base::list::Walk;
use crate::base::lock::assert_none_held;
use crate::base::purged::Purged;
use crate::os::{Os, PageRun};
use crate::size::GRANULE;
use core::ptr::null_mut;

/// Runs that are returned together: enough to share a system call, and so few that it takes less than 50 microseconds
/// under the lock to take them out and to put them back.
const BATCH: usize = 8;
/// Runs whose descriptors are read before the lock is released.
const LOOK: u32 = 256;
/// An extent is returned when its memory was free at so many ticks in a row (second chance).
pub const IDLE_TICKS: u32 = 2;

/// The part of a unit that is returned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A dirty extent, whole.
    Extent,
    /// The unused tail of a large block.
    Tail,
    /// The descriptors inside a clean extent.
    Descriptors,
}

#[derive(Clone, Copy)]
struct Leaving {
    head: *mut Granule,
    len: u32,
    part: Part,
}

impl Leaving {
    const NONE: Self = Self { head: null_mut(), len: 0, part: Part::Extent };
}

/// Units that are leaving together.
struct Batch {
    leaving: [Leaving; BATCH],
    count: usize,
}

impl Batch {
    const EMPTY: Self = Self { leaving: [Leaving::NONE; BATCH], count: 0 };

    fn push(&mut self, item: Leaving) {
        self.leaving[self.count] = item;
        self.count += 1;
    }
}

/// The state of a pass that looks for idle memory.
struct Look {
    now: u32,
    /// All free memory counts as idle.
    force: bool,
    /// Descriptors that may be looked at before the lock is dropped.
    left: u32,
    /// Free memory was seen that is not idle yet.
    more: bool,
}

impl Look {
    fn is_idle(&self, stamp: u32) -> bool {
        self.force || is_idle(stamp, self.now)
    }

    fn goes_on(&self, batch: &Batch) -> bool {
        self.left > 0 && batch.count < BATCH
    }

    /// Notes that the run just read is not idle.
    fn at_young(&mut self) {
        self.left -= 1;
        self.more = true;
    }
}

/// Whether memory that became free at tick `stamp` is idle long enough at tick `now`. Ticks wrap.
pub const fn is_idle(stamp: u32, now: u32) -> bool {
    now.wrapping_sub(stamp) >= IDLE_TICKS
}

impl Arena {
    /// Returns all extents that are idle at tick `now`, or with `force` all that are free. The caller makes
    /// one pass at a time.
    pub fn purge<O: Os>(&self, os: &O, now: u32, force: bool) -> Purged {
        let mut total = Purged::default();
        let mut look = Look { now, force, left: 0, more: false };
        self.lock(os).start_pages();
        let pages_gone = self.return_all(os, &mut look, &mut total, Extents::take_pages);
        // After the extents: extents that became clean above have descriptors that can be returned.
        self.lock(os).stale.start();
        if pages_gone {
            self.return_all(os, &mut look, &mut total, Extents::take_descriptors);
        }
        total.more = look.more;
        total
    }

    /// Returns, batch by batch, the units that `take` finds. False if the kernel refused some: the pages are locked, and
    /// trying again at once would never end.
    fn return_all<O: Os>(
        &self,
        os: &O,
        look: &mut Look,
        total: &mut Purged,
        take: fn(&mut Extents, &mut Look, &mut Batch) -> bool,
    ) -> bool {
        loop {
            let mut batch = Batch::EMPTY;
            look.left = LOOK;
            let is_over = take(&mut self.lock(os), look, &mut batch);
            let leaving = &batch.leaving[..batch.count];
            if !leaving.is_empty() {
                let mut runs = [PageRun { start: 0, bytes: 0 }; BATCH];
                // SAFETY: marked as leaving under the lock, so only we read these descriptors' ends.
                let run_count = unsafe { runs_of(leaving, os.page_bytes(), &mut runs) };
                assert_none_held();
                // SAFETY: the runs were taken out of every list under the lock: no other thread uses them.
                let discarded = unsafe { self.discard(os, &runs[..run_count]) };
                total.returned_bytes += discarded.returned_bytes;
                total.refused_bytes += discarded.refused_bytes;
                total.calls += 1;
                let refused = discarded.refused_bytes > 0;
                let mut extents = self.lock(os);
                for item in leaving {
                    // SAFETY: marked as leaving by `take`, so no other thread touched it.
                    unsafe { extents.returned(item, refused, look.now) };
                }
                if refused {
                    return false;
                }
            }
            if is_over {
                return true;
            }
        }
    }
}

impl Extents {
    /// Starts the walks over all lists whose units may have idle pages.
    fn start_pages(&mut self) {
        self.aging.start();
        self.tails.start();
    }

    /// Takes idle pages out: dirty extents, and tails of large blocks. True at the end of both lists.
    fn take_pages(&mut self, look: &mut Look, batch: &mut Batch) -> bool {
        while look.goes_on(batch)
            && let Some(extent) = self.aging.look()
        {
            // SAFETY: the list holds heads of dirty extents, and we hold the lock.
            unsafe {
                if look.is_idle((*extent).oldest) {
                    self.take_runs(extent, look, batch);
                } else {
                    look.at_young();
                }
            }
        }
        while look.goes_on(batch)
            && let Some(block) = self.tails.look()
        {
            // SAFETY: the list holds heads of large blocks, and we hold the lock.
            unsafe {
                if !look.is_idle((*block).stamp) {
                    look.at_young();
                    continue;
                }
                self.tails.remove(block);
                (*block).flags &= !TAIL_LISTED;
                if !cfg!(ebb_mutation = "leaving_tail") {
                    (*block).flags |= TAIL_LEAVING;
                }
                batch.push(Leaving { head: block, len: (*block).len, part: Part::Tail });
            }
        }
        self.aging.is_over() && self.tails.is_over()
    }

    /// Takes clean extents out whose inner descriptors may be resident. True at the end of their list.
    fn take_descriptors(&mut self, look: &mut Look, batch: &mut Batch) -> bool {
        while look.goes_on(batch)
            && let Some(extent) = self.stale.look()
        {
            // SAFETY: the list holds heads of clean extents, and we hold the lock.
            unsafe {
                if look.is_idle((*extent).oldest) {
                    self.unlink(extent);
                    batch.push(self.leave(extent, (*extent).len, Part::Descriptors));
                } else {
                    look.at_young();
                }
            }
        }
        self.stale.is_over()
    }

    /// Cuts one dirty extent into idle pieces, which leave, and the rest, which stays. If the batch is full, or enough runs
    /// were read, the rest is read with the next batch. An extent that begins with more young runs than one look reads
    /// waits for the next tick.
    ///
    /// # Safety
    /// `extent` is the head of a dirty extent, and the look goes on.
    unsafe fn take_runs(&mut self, extent: *mut Granule, look: &mut Look, batch: &mut Batch) {
        // SAFETY: the extent is dirty and free (fn contract), and all pieces lie inside it; the lock is held (`&mut
        // self` comes from the lock's guard).
        unsafe {
            let (len, base, eldest) = ((*extent).len, (*extent).base, (*extent).oldest);
            self.unlink(extent);
            let is_first = look.left == LOOK;
            let mut start = 0;
            while start < len {
                let head = extent.wrapping_add(start as usize);
                (*head).base = base + start as usize * GRANULE;
                if !look.goes_on(batch) {
                    return self.link_dirty(head, len - start, eldest, Walk::push_for_now);
                }
                let is_idle = look.is_idle((*head).stamp);
                let mut end = start;
                let mut oldest = (*head).stamp;
                while end < len && look.left > 0 {
                    let run = extent.wrapping_add(end as usize);
                    if look.is_idle((*run).stamp) != is_idle {
                        break;
                    }
                    oldest = oldest.min((*run).stamp);
                    end += (*run).free;
                    look.left -= 1;
                }
                if is_idle {
                    self.split_unit(head, end - start, len - start);
                    batch.push(self.leave(head, end - start, Part::Extent));
                    start = end;
                    continue;
                }
                look.more = true;
                if end == len {
                    return self.link_dirty(head, len - start, oldest, Walk::push);
                }
                // An idle run follows, or one that was not read yet. Neighbouring free extents must be one extent, so the
                // young run stays together with that one, unless it leaves now.
                if !look.goes_on(batch) {
                    let is_long = start == 0 && is_first && look.left == 0;
                    let push = if is_long { Walk::push_for_later } else { Walk::push_for_now };
                    return self.link_dirty(head, len - start, eldest, push);
                }
                self.split_unit(head, end - start, len - start);
                self.link_dirty(head, end - start, oldest, Walk::push);
                start = end;
            }
        }
    }

    /// Marks an extent that was taken out of its tree as leaving.
    ///
    /// # Safety
    /// The `len` granules at `head` belong to the caller.
    unsafe fn leave(&mut self, head: *mut Granule, len: u32, part: Part) -> Leaving {
        let kind = if cfg!(ebb_mutation = "leaving_extent") { Kind::Free } else { Kind::Leaving };
        // SAFETY: the granules belong to the caller (fn contract), so no other thread writes the descriptors at their
        // ends.
        unsafe { mark_ends(head, len, kind) };
        self.leaving_granules += len as usize;
        Leaving { head, len, part }
    }

    /// Puts a unit back that was leaving: as clean, or unchanged if the kernel refused.
    ///
    /// # Safety
    /// `item` came from `take_idle`.
    unsafe fn returned(&mut self, item: &Leaving, refused: bool, now: u32) {
        // SAFETY: what `take_idle` took belongs to this pass until it is put back here, and the lock is held (`&mut
        // self` comes from the guard).
        unsafe {
            match item.part {
                Part::Tail => {
                    (*item.head).flags &= !TAIL_LEAVING;
                    if (*item.head).flags & FREE_PENDING != 0 && !cfg!(ebb_mutation = "pending_free") {
                        self.free(item.head, item.len, Fill::Dirty, now);
                    }
                }
                Part::Extent => {
                    self.leaving_granules -= item.len as usize;
                    let fill = if refused { Fill::Dirty } else { Fill::Clean };
                    self.free(item.head, item.len, fill, now);
                }
                Part::Descriptors => {
                    self.leaving_granules -= item.len as usize;
                    self.free_hollow(item.head, item.len, now);
                }
            }
        }
    }
}

/// The pages of the leaving items: one run for each item that has whole pages. Returns how many runs.
///
/// # Safety
/// The items are leaving, so their first and last descriptors do not change.
unsafe fn runs_of(leaving: &[Leaving], page_bytes: usize, runs: &mut [PageRun; BATCH]) -> usize {
    let mut count = 0;
    for item in leaving {
        // SAFETY: the item is leaving (fn contract), so its first descriptor does not change.
        let (base, bits) = unsafe { ((*item.head).base, usize_of((*item.head).bits)) };
        let end = base + item.len as usize * GRANULE;
        let (start, end) = match item.part {
            Part::Extent => (base, end),
            Part::Tail => (base + bits, end),
            Part::Descriptors => {
                let inner = inner_descriptors(item.head, item.len, page_bytes);
                (inner.start, inner.end)
            }
        };
        if start < end {
            runs[count] = PageRun { start, bytes: end - start };
            count += 1;
        }
    }
    count
}

#[cfg(all(test, loom))]
mod loom_tests;
