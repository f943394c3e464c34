//! Return of idle extents and of large blocks' tails to the kernel, and of the descriptors inside
//! long clean extents, of which only the first and the last say anything.
//!
//! What goes is taken out of the trees under the lock and marked as leaving, the lock is dropped,
//! the kernel is called, and under the lock it comes back as clean. So no lock is held over the
//! system call, and nobody can be given a page that is about to be emptied.

use super::Arena;
use super::extents::Extents;
use super::granule::{FREE_PENDING, Fill, Granule, Kind, TAIL_LEAVING, TAIL_LISTED, mark_ends};
use crate::base::purged::Purged;
use crate::os::{Os, PageRun};
use crate::size::GRANULE;
use core::ptr::null_mut;

/// Runs returned with one drop of the lock: enough to share a system call, few enough that taking
/// them out stays within microseconds.
const BATCH: usize = 32;
/// Granules of dirty extents looked at with the lock held once, if something goes: some 30 microseconds.
const LOOK: u32 = 1024;
/// An extent goes when its memory was free at this many ticks running (second chance).
pub const IDLE_TICKS: u32 = 2;

/// What of a unit goes.
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
    const NONE: Self = Self {
        head: null_mut(),
        len: 0,
        part: Part::Extent,
    };
}

/// Whether memory that became free at tick `stamp` is idle long enough at tick `now`. Ticks wrap.
pub const fn is_idle(stamp: u32, now: u32) -> bool {
    now.wrapping_sub(stamp) >= IDLE_TICKS
}

impl Arena {
    /// Whether [`Arena::purge`] would find pages to return.
    pub fn has_dirty<O: Os>(&self, os: &O) -> bool {
        let extents = self.lock(os);
        !extents.aging.first.is_null() || !extents.tails.first.is_null()
    }

    /// Returns all extents that are idle at tick `now`, or with `force` all that are free.
    pub fn purge<O: Os>(&self, os: &O, now: u32, force: bool) -> Purged {
        let mut total = Purged::default();
        loop {
            let mut leaving = [Leaving::NONE; BATCH];
            let mut runs = [PageRun { start: 0, bytes: 0 }; BATCH];
            let (count, more) = self.lock(os).take_idle(now, force, &mut leaving);
            if count == 0 {
                total.more |= more;
                return total;
            }
            // SAFETY: marked as leaving under the lock, so only we read these descriptors' ends.
            let run_count = unsafe { runs_of(&leaving[..count], os.page_bytes(), &mut runs) };
            // SAFETY: the runs were taken out of every list under the lock: nobody else uses them.
            let discarded = unsafe { os.discard(&runs[..run_count]) };
            total.returned_bytes += discarded.returned_bytes;
            total.refused_bytes += discarded.refused_bytes;
            total.calls += 1;
            let mut extents = self.lock(os);
            for item in &leaving[..count] {
                // SAFETY: marked as leaving by `take_idle`, so nobody else touched it.
                unsafe { extents.returned(item, discarded.refused_bytes > 0, now) };
            }
            if discarded.refused_bytes > 0 {
                // Locked pages: trying them again at once would never end.
                return total;
            }
        }
    }
}

impl Extents {
    /// Takes up to a batch of idle runs out of the trees.
    fn take_idle(
        &mut self,
        now: u32,
        force: bool,
        leaving: &mut [Leaving; BATCH],
    ) -> (usize, bool) {
        let mut count = 0;
        let mut more = false;
        let mut looked_at = 0;
        let mut extent = self.aging.first;
        while !extent.is_null() && count < BATCH && (count == 0 || looked_at < LOOK) {
            // SAFETY: the list holds heads of dirty extents, and we hold the lock.
            unsafe {
                let next = (*extent).next;
                if force || is_idle((*extent).oldest, now) {
                    looked_at += LOOK.min((*extent).len);
                    count = self.take_runs(extent, now, force, leaving, count);
                } else {
                    more = true;
                }
                extent = next;
            }
        }
        let mut block = self.tails.first;
        while !block.is_null() && count < BATCH {
            // SAFETY: the list holds heads of large blocks, and we hold the lock.
            unsafe {
                let next = (*block).next;
                if force || is_idle((*block).stamp, now) {
                    self.tails.remove(block);
                    (*block).flags &= !TAIL_LISTED;
                    if !cfg!(ebb_mutation = "leaving_tail") {
                        (*block).flags |= TAIL_LEAVING;
                    }
                    leaving[count] = Leaving {
                        head: block,
                        len: (*block).len,
                        part: Part::Tail,
                    };
                    count += 1;
                } else {
                    more = true;
                }
                block = next;
            }
        }
        let mut extent = self.stale.first;
        while !extent.is_null() && count < BATCH {
            // SAFETY: the list holds heads of clean extents, and we hold the lock.
            unsafe {
                let next = (*extent).next;
                if force || is_idle((*extent).oldest, now) {
                    self.unlink(extent);
                    leaving[count] = self.leave(extent, (*extent).len, Part::Descriptors);
                    count += 1;
                } else {
                    more = true;
                }
                extent = next;
            }
        }
        (count, more)
    }

    /// Cuts one dirty extent into runs that are idle, which leave, and the rest, which stays; behind a long run that
    /// leaves it may be idle too, for the next batch to see.
    ///
    /// # Safety
    /// `extent` is the head of a dirty extent.
    unsafe fn take_runs(
        &mut self,
        extent: *mut Granule,
        now: u32,
        force: bool,
        leaving: &mut [Leaving; BATCH],
        mut count: usize,
    ) -> usize {
        // SAFETY: the caller's promise; all pieces lie inside the extent.
        unsafe {
            let (len, base, eldest) = ((*extent).len, (*extent).base, (*extent).oldest);
            self.unlink(extent);
            let mut start = 0;
            while start < len {
                let head = extent.wrapping_add(start as usize);
                (*head).base = base + start as usize * GRANULE;
                let room = count < BATCH;
                let idle = |granule: u32| {
                    room && (force || is_idle((*extent.wrapping_add(granule as usize)).stamp, now))
                };
                let run_idle = idle(start);
                let mut end = start + 1;
                let mut oldest = (*head).stamp;
                let most = if run_idle { len.min(start + LOOK) } else { len };
                while end < most && idle(end) == run_idle {
                    oldest = oldest.min((*extent.wrapping_add(end as usize)).stamp);
                    end += 1;
                }
                self.borders.split_unit(head, end - start, len - start);
                if run_idle {
                    leaving[count] = self.leave(head, end - start, Part::Extent);
                    count += 1;
                    if end == start + LOOK && end < len {
                        let rest = extent.wrapping_add(end as usize);
                        (*rest).base = base + end as usize * GRANULE;
                        self.relink(rest, len - end, eldest);
                        break;
                    }
                } else {
                    self.relink(head, end - start, oldest);
                }
                start = end;
            }
        }
        count
    }

    /// Marks an extent that was taken out of its tree as leaving.
    ///
    /// # Safety
    /// The `len` granules at `head` belong to the caller.
    unsafe fn leave(&mut self, head: *mut Granule, len: u32, part: Part) -> Leaving {
        let kind = if cfg!(ebb_mutation = "leaving_extent") {
            Kind::Free
        } else {
            Kind::Leaving
        };
        // SAFETY: the caller's promise.
        unsafe { mark_ends(head, len, kind) };
        self.leaving_granules += len as usize;
        Leaving { head, len, part }
    }

    /// Puts what was leaving back: as clean, or as it was where the kernel refused.
    ///
    /// # Safety
    /// `item` came from `take_idle`.
    unsafe fn returned(&mut self, item: &Leaving, refused: bool, now: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            match item.part {
                Part::Tail => {
                    (*item.head).flags &= !TAIL_LEAVING;
                    if (*item.head).flags & FREE_PENDING != 0
                        && !cfg!(ebb_mutation = "pending_free")
                    {
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

/// The pages of what leaves: a run for each item that has whole pages. Returns how many.
///
/// # Safety
/// The items are leaving, so their first and last descriptors do not change.
unsafe fn runs_of(leaving: &[Leaving], page_bytes: usize, runs: &mut [PageRun; BATCH]) -> usize {
    let mut count = 0;
    for item in leaving {
        // SAFETY: the caller's promise.
        let (base, bits) = unsafe { ((*item.head).base, (*item.head).bits as usize) };
        let end = base + item.len as usize * GRANULE;
        let (start, end) = match item.part {
            Part::Extent => (base, end),
            Part::Tail => (base + bits, end),
            Part::Descriptors => {
                let inner = item.head.wrapping_add(1) as usize;
                let last = item.head.wrapping_add(item.len as usize - 1) as usize;
                (inner.next_multiple_of(page_bytes), last - last % page_bytes)
            }
        };
        if start < end {
            runs[count] = PageRun {
                start,
                bytes: end - start,
            };
            count += 1;
        }
    }
    count
}

#[cfg(all(test, loom))]
mod loom_tests;
