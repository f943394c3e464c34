//! Metadata memory: small pieces for bitmaps and thread caches, apart from the heap's own pages.
//!
//! Pieces are powers of two from 16 bytes to 128 KiB, cut from chunks of address space that are
//! committed as they are used. A freed piece is kept in a list of its size, the link in its first
//! word: metadata is the allocator's own, nobody else can write there.

use super::lock::{Lock, Rank};
use crate::os::{Os, PageRun};
use core::ptr::{NonNull, null_mut};

const CHUNK: usize = 8 << 20;
const STEP: usize = 128 << 10;
const SMALLEST_LOG2: u32 = 4;
const LARGEST_LOG2: u32 = 17;
const LISTS: usize = (LARGEST_LOG2 - SMALLEST_LOG2 + 1) as usize;

/// Metadata memory of one heap.
pub struct Metadata {
    pool: Lock<Pool>,
}

struct Pool {
    next: usize,
    committed: usize,
    end: usize,
    free: [*mut Link; LISTS],
    used_bytes: usize,
    committed_bytes: usize,
}

struct Link {
    next: *mut Link,
    /// The pages behind the first were returned since the piece was freed.
    returned: bool,
}

// SAFETY: the links point to free pieces that only the holder of the lock touches.
unsafe impl Send for Pool {}

const fn list_of(bytes: usize) -> (usize, usize) {
    let rounded = if bytes < 16 {
        16
    } else {
        bytes.next_power_of_two()
    };
    ((rounded.trailing_zeros() - SMALLEST_LOG2) as usize, rounded)
}

impl Default for Metadata {
    fn default() -> Self {
        Self::new()
    }
}

impl Metadata {
    const fn empty() -> Pool {
        Pool {
            next: 0,
            committed: 0,
            end: 0,
            free: [null_mut(); LISTS],
            used_bytes: 0,
            committed_bytes: 0,
        }
    }

    /// No memory yet.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            pool: Lock::new(Rank::Metadata, Self::empty()),
        }
    }

    /// No memory yet.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            pool: Lock::new(Rank::Metadata, Self::empty()),
        }
    }

    /// A piece of at least `bytes` bytes (at most 128 KiB), aligned to its rounded size up to a page;
    /// its contents are undefined. `None` when the kernel gives no memory.
    ///
    /// With `wait` false a lock that is held counts as no memory: for signal handlers.
    pub fn allocate<O: Os>(&self, os: &O, bytes: usize, wait: bool) -> Option<NonNull<u8>> {
        let (list, rounded) = list_of(bytes);
        let mut pool = self.pool.lock_if(os, wait)?;
        let head = *pool.free.get(list)?;
        let piece = if let Some(piece) = NonNull::new(head) {
            // SAFETY: a piece in a list is free and holds a link that `free` wrote.
            pool.free[list] = unsafe { piece.as_ref().next };
            piece.cast()
        } else {
            pool.cut(os, rounded)?
        };
        pool.used_bytes += rounded;
        Some(piece)
    }

    /// Takes a piece back.
    ///
    /// # Safety
    /// `piece` came from [`Metadata::allocate`] with the same `bytes` and is not used any more.
    pub unsafe fn free<O: Os>(&self, os: &O, piece: NonNull<u8>, bytes: usize) {
        let (list, rounded) = list_of(bytes);
        let mut pool = self.pool.lock(os);
        let link = piece.as_ptr().cast::<Link>();
        // SAFETY: the piece is ours again, at least 16 bytes long and aligned for a pointer.
        unsafe {
            link.write(Link {
                next: pool.free[list],
                returned: false,
            })
        };
        pool.free[list] = link;
        pool.used_bytes -= rounded;
    }

    /// Returns the pages of free pieces to the kernel, but for the first of each, which has the link.
    /// Only pieces of several pages have any: the caches of threads that ended.
    pub fn purge<O: Os>(&self, os: &O) {
        let page_bytes = os.page_bytes();
        for list in 0..LISTS {
            let bytes = 1usize << (SMALLEST_LOG2 as usize + list);
            if bytes <= page_bytes {
                continue;
            }
            // The list is ours while the kernel is called without the lock.
            let mut pieces = core::mem::replace(&mut self.pool.lock(os).free[list], null_mut());
            let first = pieces;
            let mut last = null_mut::<Link>();
            while !pieces.is_null() {
                // SAFETY: the pieces are free and in no list that anybody else can reach.
                unsafe {
                    if !(*pieces).returned {
                        (*pieces).returned = true;
                        let start = pieces as usize + page_bytes;
                        os.discard(&[PageRun {
                            start,
                            bytes: bytes - page_bytes,
                        }]);
                    }
                    last = pieces;
                    pieces = (*pieces).next;
                }
            }
            if !last.is_null() {
                let mut pool = self.pool.lock(os);
                // SAFETY: as above; the lock is held for the list's head.
                unsafe { (*last).next = pool.free[list] };
                pool.free[list] = first;
            }
        }
    }

    /// Bytes in use and bytes committed.
    pub fn bytes<O: Os>(&self, os: &O) -> (usize, usize) {
        let pool = self.pool.lock(os);
        (pool.used_bytes, pool.committed_bytes)
    }

    /// The lock, for the fork handlers.
    pub fn freeze<O: Os>(&self, os: &O) {
        self.pool.freeze(os);
    }

    /// See [`Lock::thaw`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn thaw<O: Os>(&self, os: &O) {
        // SAFETY: the caller's promise.
        unsafe { self.pool.thaw(os) }
    }

    /// See [`Lock::reset`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn reset(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.pool.reset() }
    }
}

impl Pool {
    /// Cuts a fresh piece off the chunk, or off a new chunk.
    fn cut<O: Os>(&mut self, os: &O, rounded: usize) -> Option<NonNull<u8>> {
        let align = rounded.min(os.page_bytes());
        let mut start = self.next.next_multiple_of(align);
        if start + rounded > self.end {
            let chunk = os.reserve(CHUNK, 64 << 10).ok()?.as_ptr() as usize;
            self.next = chunk;
            self.committed = chunk;
            self.end = chunk + CHUNK;
            start = chunk;
        }
        while start + rounded > self.committed {
            // SAFETY: the step lies in the chunk reserved above: both are multiples of STEP.
            unsafe { os.commit(self.committed, STEP) }.ok()?;
            self.committed += STEP;
            self.committed_bytes += STEP;
        }
        self.next = start + rounded;
        NonNull::new(start as *mut u8)
    }
}
