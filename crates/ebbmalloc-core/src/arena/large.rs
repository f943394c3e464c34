//! Large blocks: an extent of its own for each, used up to a whole page.
//!
//! The pages after the used ones (less than a granule) cost address space only, unless the memory
//! came from a dirty extent; then they are resident for nothing and the block goes on the list of
//! tails, which the purger returns like any idle page.

use super::Arena;
use super::extents::Extents;
use super::granule::{FREE_PENDING, FROM_DIRTY, Fill, Granule, Kind, TAIL_LEAVING, TAIL_LISTED};
use crate::base::corrupt::{Corruption, corruption};
use crate::base::exact::usize_of;
use crate::base::lock::Wait;
use crate::base::sync::Ordering;
use crate::os::{Os, PageRun};
use crate::size::{GRANULE, granules_for, is_possible};

/// A block of up to so many granules (1 MiB) moves rather than grow into pages that are not there,
/// while some that are lie idle.
const MOVED_TO_DIRTY: u32 = 16;

/// A large block that was just made.
#[derive(Clone, Copy, Debug)]
pub struct LargeBlock {
    /// Its address.
    pub start: usize,
    /// Whether it is known to read as zero.
    pub zero: bool,
}

/// From this size on a block may have a guard: 1.6 microseconds for two calls of the kernel, where the page faults of a
/// block that is filled take 80. Of 100 KB they were 4 %.
const GUARDED_FROM: usize = 256 << 10;
/// So many blocks have one, and then one in [`RARELY`]: a granule for each raised the peak of *buffers* by up to 9 %.
const ALWAYS: usize = 64;
const RARELY: usize = 16;
/// What a large block's `seen` says of a guard after it: none, one that it is to get, one that is there.
const NO_GUARD: u64 = 0;
const WANTS_GUARD: u64 = 1;
const HAS_GUARD: u64 = 2;

impl Arena {
    /// Makes a block of at least `size` bytes aligned to `align`. `None` if the kernel gives no memory
    /// or the size is beyond all bounds. Without waiting, also if the lock is held.
    pub fn allocate_large<O: Os>(
        &self,
        os: &O,
        size: usize,
        align: usize,
        tick: u32,
        wait: Wait,
    ) -> Option<LargeBlock> {
        if !is_possible(size, align) {
            return None;
        }
        let bytes = size.max(1).next_multiple_of(os.page_bytes());
        let mut extents = self.lock_if(os, wait)?;
        let align = granules_for(align);
        let is_guarded = self.is_guarded(os, &mut extents, bytes, align);
        let head = extents.allocate_for_large(os, bytes, align, is_guarded)?;
        // SAFETY: the extent is ours alone.
        unsafe {
            let block = self.make_large(os, &mut extents, head, bytes, tick);
            (*head).seen = if is_guarded { WANTS_GUARD } else { NO_GUARD };
            Some(block)
        }
    }

    /// Makes a block of `bytes` bytes, whole pages, out of the granules at `head`.
    ///
    /// # Safety
    /// They were just allocated, as many as `bytes` needs, and no other thread knows them.
    pub(super) unsafe fn make_large<O: Os>(
        &self,
        os: &O,
        extents: &mut Extents,
        head: *mut Granule,
        bytes: usize,
        tick: u32,
    ) -> LargeBlock {
        self.publish(extents);
        // SAFETY: the granules came from `allocate` for this block (fn contract) and the lock is held, so no other thread
        // knows them.
        unsafe {
            extents.mark_large(head, (*head).len);
            extents.set_used(head, bytes, os.page_bytes(), tick);
            extents.large_bytes += bytes;
            extents.large_blocks += 1;
            extents.large_counts.made(bytes);
            (*head).touched = 0;
            (*head).free = 0;
            (*head).seen = NO_GUARD;
            LargeBlock { start: (*head).base, zero: (*head).fill == Fill::Clean }
        }
    }

    /// Whether a new large block gets a guard: one for which there is new memory, and whose turn it is.
    fn is_guarded<O: Os>(&self, os: &O, extents: &mut Extents, bytes: usize, align: u32) -> bool {
        let may_have = bytes >= GUARDED_FROM && align == 1 && !extents.limited && os.guards_ends();
        // SAFETY: the lock is held (`extents` comes from its guard).
        if !may_have || !unsafe { extents.dirty.best_fit(granules_for(bytes)) }.is_null() {
            return false;
        }
        let earlier = self.frames.guardable.fetch_add(1, Ordering::Relaxed);
        earlier < ALWAYS || earlier.is_multiple_of(RARELY)
    }

    /// What the kernel is asked for about a block with new memory, before it is handed out: the page after it faults, since
    /// two calls are little next to its page faults; and huge pages.
    ///
    /// # Safety
    /// `head` is the descriptor of a live large block of the caller's that nothing was written to.
    pub unsafe fn settle_large<O: Os>(&self, os: &O, head: *mut Granule, zeroed: bool) {
        // SAFETY: of a live block only its owner, the caller, changes these fields; the page after it is in its tail.
        unsafe {
            self.ask_for_huge_pages(os, head, zeroed);
            let (bytes, room) = (usize_of((*head).bits), (*head).len as usize * GRANULE);
            if (*head).seen == WANTS_GUARD && bytes < room && os.guard((*head).base + bytes, false) {
                (*head).seen = HAS_GUARD;
            }
        }
    }

    /// Undoes the guard of [`Arena::settle_large`], before the block's end changes. False if the kernel refuses: then
    /// nothing else may lie there.
    ///
    /// # Safety
    /// `head` is a valid descriptor. If it is no live block's, a contract was broken that is found out later.
    pub(super) unsafe fn end_guard<O: Os>(&self, os: &O, head: *mut Granule) -> bool {
        // SAFETY: the descriptor is valid (fn contract); of a live block only its owner changes these fields.
        unsafe {
            if (*head).kind != Kind::Large || (*head).seen != HAS_GUARD {
                return true;
            }
            let ended = os.guard((*head).base + usize_of((*head).bits), true);
            if ended {
                (*head).seen = NO_GUARD;
            }
            ended
        }
    }

    /// Takes a large block back. False if the lock is held and may not be waited for; nothing has happened
    /// then.
    ///
    /// # Safety
    /// `head` is the descriptor of the granule that `address` lies in.
    pub unsafe fn free_large<O: Os>(&self, os: &O, head: *mut Granule, address: usize, tick: u32, wait: Wait) -> bool {
        // SAFETY: `head` is the descriptor that the block lies in (fn contract); the block is the caller's until it
        // is freed below.
        unsafe {
            if !self.end_guard(os, head) {
                // The memory is lost.
                return true;
            }
            self.end_huge_pages(os, head, 0);
        }
        let Some(mut extents) = self.lock_if(os, wait) else {
            return false;
        };
        // SAFETY: `head` is the descriptor that the block lies in (fn contract), and the lock is held.
        unsafe {
            check_large(os, head, address);
            let bytes = usize_of((*head).bits);
            extents.large_bytes -= bytes;
            extents.large_blocks -= 1;
            extents.large_counts.freed(bytes);
            if extents.is_abandoned(head) {
                drop(extents);
                forget_abandoned(os, head);
                return true;
            }
            self.freed_bytes.fetch_add(bytes, Ordering::Relaxed);
            if (*head).flags & TAIL_LEAVING != 0 {
                (*head).flags |= FREE_PENDING;
                return true;
            }
            extents.unlist_tail(head);
            extents.free(head, (*head).len, Fill::Dirty, tick);
        }
        true
    }

    /// Takes a large block of `least` bytes or more back whose pages go to the kernel now; how many
    /// bytes that were. `None` if the block is smaller, or the kernel refuses; nothing has happened then.
    ///
    /// # Safety
    /// As for [`Arena::free_large`].
    pub unsafe fn return_large<O: Os>(
        &self,
        os: &O,
        head: *mut Granule,
        address: usize,
        least: usize,
        tick: u32,
    ) -> Option<usize> {
        // SAFETY: the caller frees the block by this call. It is live until it is freed below, so its pages are the
        // caller's to discard without a lock.
        unsafe {
            let bytes = self.large_size(os, head, address);
            if bytes < least || !self.end_guard(os, head) {
                return None;
            }
            self.end_huge_pages(os, head, 0);
            // The tail goes too: it may be resident.
            let run = PageRun { start: address, bytes: (*head).len as usize * GRANULE };
            if self.discard(os, &[run]).refused_bytes > 0 {
                return None;
            }
            let mut extents = self.lock(os);
            extents.large_bytes -= bytes;
            extents.large_blocks -= 1;
            extents.large_counts.freed(bytes);
            if extents.is_abandoned(head) || (*head).flags & TAIL_LEAVING != 0 {
                (*head).flags |= FREE_PENDING;
                return Some(bytes);
            }
            extents.unlist_tail(head);
            extents.free(head, (*head).len, Fill::Clean, tick);
            Some(bytes)
        }
    }

    /// Size in bytes of the large block at `address`: all of it may be used.
    ///
    /// # Safety
    /// `head` is the descriptor of the granule that `address` lies in.
    pub unsafe fn large_size<O: Os>(&self, os: &O, head: *mut Granule, address: usize) -> usize {
        // SAFETY: `head` is a valid descriptor (fn contract); a live block's descriptor changes only by its owner's calls.
        unsafe {
            check_large(os, head, address);
            usize_of((*head).bits)
        }
    }

    /// Makes a large block smaller or larger where it is. False if there is no room, no block can be so large, a hook
    /// refuses, or the purger is at work on it; nothing has happened then.
    ///
    /// # Safety
    /// `head` is the descriptor of a live large block.
    pub unsafe fn resize_large<O: Os>(&self, os: &O, head: *mut Granule, size: usize, tick: u32) -> bool {
        if !is_possible(size, 1) {
            return false;
        }
        let bytes = size.next_multiple_of(os.page_bytes());
        let granules = granules_for(bytes);
        // SAFETY: `head` is the descriptor that the block lies in (fn contract), and the caller owns the block, whose
        // end may lose its guard and its huge pages.
        unsafe {
            if !self.end_guard(os, head) {
                return false;
            }
            self.end_huge_pages(os, head, granules as usize);
        }
        let mut extents = self.lock(os);
        // SAFETY: the block is live and the caller's (fn contract), and the lock is held.
        unsafe {
            let (old_bytes, old_len) = (usize_of((*head).bits), (*head).len);
            if extents.is_abandoned(head) || (*head).flags & TAIL_LEAVING != 0 {
                return false;
            }
            extents.unlist_tail(head);
            let fill = if granules > old_len {
                extents.extend(head, old_len, granules - old_len)
            } else {
                // What is given up was written to: resident.
                let cut = extents.split_unit(head, granules, old_len);
                cut.then_some(Fill::Dirty)
            };
            let Some(fill) = fill else {
                extents.set_used(head, old_bytes, os.page_bytes(), tick);
                return false;
            };
            let dirty = fill == Fill::Dirty || (*head).flags & FROM_DIRTY != 0;
            (*head).fill = if dirty { Fill::Dirty } else { Fill::Clean };
            extents.mark_large(head, granules);
            if granules > old_len {
                self.note_growth(&mut extents);
            } else if granules < old_len {
                self.freed_bytes.fetch_add((old_len - granules) as usize * GRANULE, Ordering::Relaxed);
                let rest = head.wrapping_add(granules as usize);
                (*rest).base = (*head).base + granules as usize * GRANULE;
                extents.free(rest, old_len - granules, Fill::Dirty, tick);
            }
            extents.large_bytes = extents.large_bytes + bytes - old_bytes;
            extents.large_counts.freed(old_bytes);
            extents.large_counts.made(bytes);
            extents.set_used(head, bytes, os.page_bytes(), tick);
        }
        true
    }
}

impl Extents {
    /// Takes the free granules right after a block of `len` granules, if there are `more` of them
    /// free; returns what they hold (dirty or clean). The caller makes them part of the block.
    ///
    /// # Safety
    /// `head` is a block of `len` granules.
    pub unsafe fn extend(&mut self, head: *mut Granule, len: u32, more: u32) -> Option<Fill> {
        // SAFETY: the block is the caller's (fn contract); units lie side by side, so `after` is the head of one.
        unsafe {
            if !self.neighbours(head, len).1 {
                return None;
            }
            let after = head.wrapping_add(len as usize);
            if (*after).kind != Kind::Free || (*after).len < more {
                return None;
            }
            // Fresh pages cost more than a short block's copy to where pages are.
            let dirty = self.dirty.last();
            if (*after).fill == Fill::Clean
                && len <= MOVED_TO_DIRTY
                && !dirty.is_null()
                && (*dirty).len / 2 >= len + more
            {
                return None;
            }
            if !self.split_unit(after, more, (*after).len) {
                return None;
            }
            let carved = self.cut(after, 0, more);
            let (fill, stamp) = ((*carved).fill, (*carved).stamp);
            if !self.may_join(head, len, more) {
                self.free(carved, more, fill, stamp);
                return None;
            }
            Some(fill)
        }
    }

    /// Marks the ends of a large block, and notes whether its memory was dirty.
    ///
    /// # Safety
    /// The `len` granules at `head` came from [`Extents::allocate`] or [`Extents::extend`].
    pub unsafe fn mark_large(&mut self, head: *mut Granule, len: u32) {
        // SAFETY: the granules came from this arena and are the caller's (fn contract), so both ends have descriptors
        // that no other thread writes.
        unsafe {
            let last = head.wrapping_add(len as usize - 1);
            (*last).kind = Kind::LargeTail;
            (*last).head = head;
            (*head).kind = Kind::Large;
            (*head).head = head;
            (*head).len = len;
            (*head).flags = if (*head).fill == Fill::Dirty { FROM_DIRTY } else { 0 };
        }
    }

    /// Notes how many bytes of a large block are used, and lists its tail if that may be resident.
    ///
    /// # Safety
    /// `head` is a marked large block that is not on the list of tails.
    unsafe fn set_used(&mut self, head: *mut Granule, bytes: usize, page_bytes: usize, tick: u32) {
        // SAFETY: `head` is a large block (fn contract), and the arena's lock is held (`&mut self` comes from the
        // guard), so list and descriptor are this call's.
        unsafe {
            (*head).bits = bytes as u64;
            let tail = (*head).len as usize * GRANULE - bytes;
            if (*head).flags & FROM_DIRTY != 0 && tail >= page_bytes {
                (*head).stamp = tick;
                (*head).flags |= TAIL_LISTED;
                self.tails.push(head);
            }
        }
    }

    /// Takes a large block off the list of tails, if it is there.
    ///
    /// # Safety
    /// `head` is a large block.
    pub(super) unsafe fn unlist_tail(&mut self, head: *mut Granule) {
        // SAFETY: `head` is a large block (fn contract); with the flag it is on this list, whose lock is held (`&mut
        // self` comes from the guard).
        unsafe {
            if (*head).flags & TAIL_LISTED != 0 {
                (*head).flags &= !TAIL_LISTED;
                self.tails.remove(head);
            }
        }
    }
}

/// The end of an abandoned block: its pages go to the kernel, and nothing else will ever lie there.
///
/// # Safety
/// `head` is the descriptor of a large block whose owner has freed it.
pub(super) unsafe fn forget_abandoned<O: Os>(os: &O, head: *mut Granule) {
    // SAFETY: the owner has freed the block (fn contract): no thread uses its pages, and its descriptor has no other reader.
    unsafe {
        (*head).flags |= FREE_PENDING;
        // Where the kernel refuses they stay.
        let _ = os.discard(&[PageRun { start: (*head).base, bytes: (*head).len as usize * GRANULE }]);
    }
}

/// Ends the process unless a live large block starts at `address`.
///
/// # Safety
/// `head` is a valid descriptor.
unsafe fn check_large<O: Os>(os: &O, head: *mut Granule, address: usize) {
    // SAFETY: the descriptor is valid (fn contract); a live block's changes only by its owner's calls, and a broken
    // contract ends the process here.
    unsafe {
        let pending = (*head).flags & FREE_PENDING != 0;
        match (*head).kind {
            Kind::Large if (*head).base == address && !pending => {}
            Kind::Large if pending => corruption(os, Corruption::DoubleFree, address),
            kind => corruption(os, kind.misuse(), address),
        }
    }
}
