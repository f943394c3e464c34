//! Growth of a large block that cannot grow where it is: to a place with room for the growth that
//! follows, by its page tables or by its bytes, whichever is cheaper there. Used by realloc.

use super::Arena;
use super::extents::Extents;
use super::granule::{FREE_PENDING, FROM_DIRTY, Fill, Granule, TAIL_LEAVING, TAIL_LISTED};
use super::large::{LargeBlock, forget_abandoned};
use crate::base::exact::{u32_of, usize_of};
use crate::base::frames::HUGE_PAGE;
use crate::base::lock::Wait;
use crate::base::sync::Ordering;
use crate::os::Os;
use crate::size::{GRANULE, granules_for};

/// From this size on a block is moved by its page tables instead of its bytes, where the new place
/// has no pages: below, the copy is cheaper than the call and the faults.
const MOVE_PAGES_FROM: usize = 512 * 1024;
/// From this size on it is moved so in any case.
const ALWAYS_MOVED_FROM: usize = 64 << 20;
/// The largest block that gets room to grow. Growth is by a share of the size, so the larger a block
/// is, the fewer moves are left to save, and the more address space they cost.
const ROOM_TO: usize = 64 << 20;

/// Room on each side of a block that was moved because it grows, in multiples of its length.
const ROOM: u32 = 2;

impl Arena {
    /// Moves a large block to a larger one of at least `size` bytes. Returns the new address, or `None`
    /// if there is no memory (nothing has happened then).
    ///
    /// # Safety
    /// `head` is the descriptor of a live large block, and `size` is at least its size.
    pub unsafe fn move_large<O: Os>(&self, os: &O, head: *mut Granule, size: usize, tick: u32) -> Option<usize> {
        // SAFETY: the block is live and the caller's (fn contract), so its descriptor does not change meanwhile.
        let (old_start, old_bytes) = unsafe {
            if !self.end_guard(os, head) {
                return None;
            }
            ((*head).base, usize_of((*head).bits))
        };
        let new =
            self.allocate_to_grow(os, size, tick).or_else(|| self.allocate_large(os, size, 1, tick, Wait::Yes))?;
        // SAFETY: the old block is live until it is freed below.
        unsafe { self.end_huge_pages(os, head, 0) };
        // A huge page that moves to where none fits stays whole, in pieces that lie apart.
        let huge = self.frames.may_be_huge(old_start, old_start + old_bytes);
        let fits = !huge || (old_start ^ new.start) % HUGE_PAGE == 0;
        // Pages moved to where pages are would throw those away, to be faulted in again elsewhere; of a very long block
        // it is not known whether there are any.
        let by_pages = fits && (new.zero && old_bytes >= MOVE_PAGES_FROM || old_bytes >= ALWAYS_MOVED_FROM)
            // SAFETY: both blocks are ours: the old one is the caller's (fn contract), the new one was just made.
            && unsafe { os.move_pages(old_start, new.start, old_bytes) }.is_ok();
        if !by_pages {
            // SAFETY: the old block is the caller's, the new one was just made and is no shorter.
            unsafe {
                core::ptr::copy_nonoverlapping(old_start as *const u8, new.start as *mut u8, old_bytes);
            }
        }
        if by_pages && huge {
            self.mark(os, new.start, new.start + old_bytes);
        }
        let mut extents = self.lock(os);
        // SAFETY: the lock is held; the old block is live until here.
        unsafe {
            extents.large_bytes -= old_bytes;
            extents.large_blocks -= 1;
            extents.large_counts.freed(old_bytes);
            if extents.is_abandoned(head) {
                drop(extents);
                forget_abandoned(os, head);
            } else if (*head).flags & TAIL_LEAVING != 0 {
                (*head).flags |= FREE_PENDING;
            } else {
                let tail = (*head).flags & (TAIL_LISTED | FROM_DIRTY) != 0;
                extents.unlist_tail(head);
                let len = (*head).len;
                if by_pages {
                    // The pages are gone, but for the tail, less than a granule, that may be resident.
                    // The front goes first: the tail's granule says true until it is free itself.
                    let moved = if tail { u32_of(old_bytes / GRANULE) } else { len };
                    extents.split_unit(head, moved, len);
                    extents.free(head, moved, Fill::Clean, tick);
                    if moved < len {
                        let last = head.wrapping_add(moved as usize);
                        (*last).base = old_start + moved as usize * GRANULE;
                        extents.free(last, len - moved, Fill::Dirty, tick);
                    }
                } else {
                    self.freed_bytes.fetch_add(old_bytes, Ordering::Relaxed);
                    extents.free(head, len, Fill::Dirty, tick);
                }
            }
        }
        Some(new.start)
    }

    /// A block with room around it.
    fn allocate_to_grow<O: Os>(&self, os: &O, size: usize, tick: u32) -> Option<LargeBlock> {
        if size > ROOM_TO {
            return None;
        }
        let bytes = size.next_multiple_of(os.page_bytes());
        let mut extents = self.lock(os);
        let head = extents.allocate_with_room(os, granules_for(bytes))?;
        // SAFETY: the granules are ours alone, and enough.
        Some(unsafe { self.make_large(os, &mut extents, head, bytes, tick) })
    }
}

impl Extents {
    /// Takes `len` granules for a block that grows: with room on both sides, so that it grows in
    /// place next time, and so does its neighbour. `None` if there is no such place; address space
    /// that is limited is not spent on room. `len` is at most [`ROOM_TO`] bytes.
    fn allocate_with_room<O: Os>(&mut self, os: &O, len: u32) -> Option<*mut Granule> {
        let room = len * ROOM;
        let padded = room + len + room;
        // SAFETY: we hold the lock (`&mut self`); the trees hold heads of free extents, long enough as
        // asked.
        unsafe {
            let dirty = self.dirty.last();
            if !dirty.is_null() && (*dirty).len >= len {
                return Some(self.carve_at(dirty, 0, len));
            }
            let clean = self.clean.best_fit(padded);
            if !clean.is_null() {
                return Some(self.carve_at(clean, room, len));
            }
        }
        if self.limited {
            return None;
        }
        let fresh = self.grow(os, padded, 1)?;
        self.fresh_granules += len as usize;
        let head = fresh.wrapping_add(room as usize);
        let rest = head.wrapping_add(len as usize);
        // SAFETY: the granules are ours and were never used.
        unsafe {
            let (fill, base) = ((*fresh).fill, (*fresh).base);
            (*head).base = base + room as usize * GRANULE;
            (*rest).base = (*head).base + len as usize * GRANULE;
            (*head).len = len;
            (*head).fill = fill;
            self.split_unit(fresh, room, padded);
            self.split_unit(head, len, padded - room);
            self.free(fresh, room, fill, 0);
            self.free(rest, room, fill, 0);
        }
        Some(head)
    }
}
