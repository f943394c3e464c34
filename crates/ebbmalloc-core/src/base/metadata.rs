//! Metadata memory: small pieces for bitmaps and thread caches, apart from the heap's own pages.
//!
//! Pieces are powers of two from 16 bytes to 64 KiB. Blocks of 64 KiB hold pieces of one size each. A
//! block without pieces in use is returned to the kernel when it was idle for two passes, like the
//! heap's own memory. A piece that no thread used since the last pass may be idle when it comes back.
//! Blocks are cut from chunks of address space, whose first block describes the others. A free piece
//! has the link to the next in its first word: metadata is the allocator's own, no other thread can write
//! there.

use super::list::{Linked, List};
use super::lock::{Lock, Rank, assert_none_held};
use super::purged::Purged;
use crate::base::lock::Wait;
use crate::base::sync::initialiser;
use crate::os::{Os, PageRun};
use core::ptr::{NonNull, null_mut};

const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 32;
/// Also the alignment of a chunk, so that a piece finds its chunk.
const CHUNK: usize = BLOCKS * BLOCK;
/// Blocks are made usable by so many at a time.
const STEP: usize = 2;
const SMALLEST_LOG2: u32 = 4;
const LARGEST_LOG2: u32 = 16;
const LISTS: usize = (LARGEST_LOG2 - SMALLEST_LOG2 + 1) as usize;
/// Passes after its last use at which an empty block goes.
const IDLE_PASSES: u32 = 2;
/// Blocks returned with one drop of the lock.
const BATCH: usize = 32;

/// Metadata memory of one heap.
pub struct Metadata {
    pool: Lock<Pool>,
}

struct Pool {
    /// Blocks with free pieces, by the size of the pieces.
    partial: [List<Block>; LISTS],
    /// Empty blocks that are resident.
    idle: List<Block>,
    /// Empty blocks that are not.
    returned: List<Block>,
    /// The chunk that new blocks come from.
    chunk: *mut Chunk,
    used_bytes: usize,
    resident_bytes: usize,
    /// Purges so far. Wraps.
    passes: u32,
    /// How often everything was abandoned. A chunk from before the last time is never used again.
    generation: u32,
}

/// The first block of a chunk.
#[repr(C)]
struct Chunk {
    /// Entry 0, for the first block itself, is not used.
    blocks: [Block; BLOCKS],
    /// Blocks handed out, and blocks usable, of all.
    next: usize,
    committed: usize,
    /// `Pool::generation` when it was made.
    generation: u32,
}

struct Block {
    free: *mut Link,
    /// Where the pieces begin that were never handed out, from the block's start.
    fresh: usize,
    /// Pieces in use.
    used: usize,
    /// Its place in `Pool::partial`.
    list: usize,
    /// `Pool::passes` when a piece of it was last taken, or came back from use.
    used_at: u32,
    prev: *mut Block,
    next: *mut Block,
}

struct Link {
    next: *mut Link,
}

// SAFETY: the pointers lead to memory that only the holder of the lock touches.
unsafe impl Send for Pool {}

const fn list_of(bytes: usize) -> (usize, usize) {
    let rounded = if bytes < 16 { 16 } else { bytes.next_power_of_two() };
    ((rounded.trailing_zeros() - SMALLEST_LOG2) as usize, rounded)
}

impl Metadata {
    const fn empty() -> Pool {
        Pool {
            partial: [const { List::new() }; LISTS],
            idle: List::new(),
            returned: List::new(),
            chunk: null_mut(),
            used_bytes: 0,
            resident_bytes: 0,
            passes: 0,
            generation: 0,
        }
    }

    initialiser! {
        /// No memory yet.
        pub fn new() -> Self {
            Self { pool: Lock::new(Rank::Metadata, Self::empty()) }
        }
    }

    /// A piece of at least `bytes` bytes (at most 64 KiB), aligned to its rounded size; its contents
    /// are undefined. `None` when the kernel gives no memory.
    ///
    /// Without waiting, a lock that is held counts as no memory: for signal handlers.
    pub fn allocate<O: Os>(&self, os: &O, bytes: usize, wait: Wait) -> Option<NonNull<u8>> {
        let (list, rounded) = list_of(bytes);
        let mut pool = self.pool.lock_if(os, wait)?;
        let mut block = pool.partial.get(list)?.first;
        if block.is_null() {
            block = pool.empty_block(os)?;
            // SAFETY: the block is in no list and has no piece in use; the lock is held.
            unsafe {
                (*block).list = list;
                (*block).free = null_mut();
                (*block).fresh = 0;
                pool.partial[list].push_front(block);
            }
        }
        // SAFETY: a block on this list has a free piece or a fresh one; the lock is held.
        let piece = unsafe {
            let piece = if (*block).free.is_null() {
                (*block).fresh += rounded;
                start_of(block) + (*block).fresh - rounded
            } else {
                let piece = (*block).free;
                (*block).free = (*piece).next;
                piece as usize
            };
            (*block).used += 1;
            (*block).used_at = pool.passes;
            if (*block).free.is_null() && (*block).fresh == BLOCK {
                pool.partial[list].remove(block);
            }
            piece
        };
        pool.used_bytes += rounded;
        NonNull::new(piece as *mut u8)
    }

    /// Takes a piece back. `idle` says that no thread used it since the last pass.
    ///
    /// # Safety
    /// `piece` came from [`Metadata::allocate`] with the same `bytes` and is not used any more.
    pub unsafe fn free<O: Os>(&self, os: &O, piece: NonNull<u8>, bytes: usize, idle: bool) {
        let (list, rounded) = list_of(bytes);
        let address = piece.as_ptr() as usize;
        let chunk = (address & !(CHUNK - 1)) as *mut Chunk;
        let mut pool = self.pool.lock(os);
        // SAFETY: the piece is ours again and at least 16 bytes long; its chunk describes its block.
        unsafe {
            if (*chunk).generation != pool.generation {
                return;
            }
            let block = &raw mut (*chunk).blocks[address % CHUNK / BLOCK];
            let was_full = (*block).free.is_null() && (*block).fresh == BLOCK;
            let link = piece.as_ptr().cast::<Link>();
            link.write(Link { next: (*block).free });
            (*block).free = link;
            (*block).used -= 1;
            if !idle {
                (*block).used_at = pool.passes;
            }
            if was_full {
                pool.partial[list].push_front(block);
            }
            if (*block).used == 0 {
                pool.partial[list].remove(block);
                pool.idle.push_front(block);
            }
        }
        pool.used_bytes -= rounded;
    }

    /// Returns the blocks to the kernel that were empty at two passes, or with `force` all that are.
    pub fn purge<O: Os>(&self, os: &O, force: bool) -> Purged {
        let mut total = Purged::default();
        let mut first = true;
        loop {
            let mut leaving = [null_mut(); BATCH];
            let mut runs = [PageRun { start: 0, bytes: 0 }; BATCH];
            let count;
            (count, total.more) = self.pool.lock(os).take_idle(&mut leaving, force, first);
            first = false;
            if count == 0 {
                return total;
            }
            for (run, &block) in runs.iter_mut().zip(&leaving[..count]) {
                *run = PageRun { start: start_of(block), bytes: BLOCK };
            }
            assert_none_held();
            // SAFETY: the blocks are empty and in no list: no other thread knows them.
            let discarded = unsafe { os.discard(&runs[..count]) };
            total.returned_bytes += discarded.returned_bytes;
            total.refused_bytes += discarded.refused_bytes;
            total.calls += 1;
            let refused = discarded.refused_bytes > 0;
            let mut pool = self.pool.lock(os);
            for &block in &leaving[..count] {
                // SAFETY: the blocks are empty and in no list, and the lock is held.
                unsafe {
                    if refused {
                        (*block).used_at = pool.passes;
                        pool.idle.push_front(block);
                    } else {
                        pool.returned.push_front(block);
                        pool.resident_bytes -= BLOCK;
                    }
                }
            }
            if refused {
                return total;
            }
        }
    }

    /// In the child of a fork that found the pool half changed: nothing of it is used again. Pieces in use stay
    /// so for ever.
    pub fn abandon<O: Os>(&self, os: &O) {
        let mut pool = self.pool.lock(os);
        *pool = Pool {
            used_bytes: pool.used_bytes,
            resident_bytes: pool.resident_bytes,
            passes: pool.passes,
            generation: pool.generation.wrapping_add(1),
            ..Self::empty()
        };
    }

    /// As a change might leave it that was never completed, or worse.
    #[cfg(test)]
    pub fn tear<O: Os>(&self, os: &O) {
        let mut pool = self.pool.lock(os);
        pool.partial = [(); LISTS].map(|()| List::torn());
        pool.idle = List::torn();
        pool.returned = List::torn();
        pool.chunk = super::corrupt::torn();
        pool.used_bytes = 0;
    }

    /// Bytes in use and bytes that may be resident.
    pub fn bytes<O: Os>(&self, os: &O) -> (usize, usize) {
        let pool = self.pool.lock(os);
        (pool.used_bytes, pool.resident_bytes)
    }

    /// See [`Lock::freeze`].
    #[cfg(test)]
    pub fn freeze<O: Os>(&self, os: &O) {
        self.pool.freeze(os);
    }

    /// See [`Lock::is_held`](crate::base::lock::Lock::is_held).
    pub fn is_held(&self) -> bool {
        self.pool.is_held()
    }

    /// See [`Lock::thaw`].
    ///
    /// # Safety
    /// As there.
    #[cfg(test)]
    pub unsafe fn thaw<O: Os>(&self, os: &O) {
        // SAFETY: the contract is the lock's own: this thread froze it.
        unsafe { self.pool.thaw(os) }
    }

    /// See [`Lock::reset`](crate::base::lock::Lock::reset).
    ///
    /// # Safety
    /// As there.
    pub unsafe fn reset(&self) {
        // SAFETY: the contract is the lock's own: no other thread of this process exists that could hold it.
        unsafe { self.pool.reset() }
    }
}

impl Pool {
    /// A block without pieces: one that is resident still, else one that is not, else a new one.
    fn empty_block<O: Os>(&mut self, os: &O) -> Option<*mut Block> {
        for (list, resident) in [(&mut self.idle, true), (&mut self.returned, false)] {
            let block = list.first;
            if !block.is_null() {
                // SAFETY: the list holds empty blocks, and the lock is held.
                unsafe { list.remove(block) };
                if !resident {
                    self.resident_bytes += BLOCK;
                }
                return Some(block);
            }
        }
        // SAFETY: `chunk` is null or a chunk that was made here; the lock is held.
        unsafe {
            if self.chunk.is_null() || (*self.chunk).next == BLOCKS {
                self.chunk = new_chunk(os, self.generation)?;
                self.resident_bytes += os.page_bytes();
            }
            let chunk = self.chunk;
            if (*chunk).next == (*chunk).committed {
                os.commit(chunk as usize + (*chunk).committed * BLOCK, STEP * BLOCK).ok()?;
                (*chunk).committed += STEP;
            }
            let block = &raw mut (*chunk).blocks[(*chunk).next];
            (*chunk).next += 1;
            self.resident_bytes += BLOCK;
            Some(block)
        }
    }

    /// Takes up to a batch of idle blocks out of their list; with `first`, counts a pass.
    fn take_idle(&mut self, leaving: &mut [*mut Block; BATCH], force: bool, first: bool) -> (usize, bool) {
        let (mut count, mut more) = (0, false);
        self.passes = self.passes.wrapping_add(u32::from(first));
        let mut at = self.idle.first;
        while !at.is_null() {
            // SAFETY: the list holds empty blocks, and the lock is held.
            unsafe {
                let next = (*at).next;
                let is_idle = self.passes.wrapping_sub((*at).used_at) >= IDLE_PASSES;
                if count < BATCH && (force || is_idle) {
                    self.idle.remove(at);
                    leaving[count] = at;
                    count += 1;
                } else {
                    more = true;
                }
                at = next;
            }
        }
        (count, more)
    }
}

/// Address of a block's first piece.
fn start_of(block: *mut Block) -> usize {
    let chunk = block as usize & !(CHUNK - 1);
    chunk + (block as usize - chunk) / size_of::<Block>() * BLOCK
}

fn new_chunk<O: Os>(os: &O, generation: u32) -> Option<*mut Chunk> {
    let start = os.reserve(CHUNK, CHUNK).ok()?.as_ptr() as usize;
    os.settle_huge_metadata(start, CHUNK);
    // SAFETY: reserved just above, and long enough.
    if unsafe { os.commit(start, STEP * BLOCK) }.is_err() {
        // SAFETY: reserved just above, and no thread knows it yet.
        unsafe { os.release(start, CHUNK) };
        return None;
    }
    let chunk = start as *mut Chunk;
    // SAFETY: the first block is ours and longer than a description. All else reads as zero, which is
    // an empty block that was never used.
    unsafe {
        (*chunk).next = 1;
        (*chunk).committed = STEP;
        (*chunk).generation = generation;
    }
    Some(chunk)
}

impl Linked for Block {
    unsafe fn prev(block: *mut Self) -> *mut *mut Self {
        // SAFETY: a valid block (contract of `Linked`) has the field.
        unsafe { &raw mut (*block).prev }
    }

    unsafe fn next(block: *mut Self) -> *mut *mut Self {
        // SAFETY: a valid block (contract of `Linked`) has the field.
        unsafe { &raw mut (*block).next }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
