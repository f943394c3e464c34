//! Blocks outside all regions: a signal handler that finds every lock taken gets a mapping of its
//! own, and so does a thread that a fork keeps waiting for long. A table without locks remembers them; it is looked at only for addresses that lie in no
//! region.

use crate::os::Os;
use crate::size::GRANULE;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Mappings at a time. Reached only by handlers that allocate without end at the worst moment; then
/// they get no memory, which is an answer. Threads that a fork keeps waiting are then served from the heap.
const PLACES: usize = 1024;

struct Place {
    /// Address of the block; 0 when free, 1 while being filled. Claimed by compare-and-swap;
    /// published with release, which pairs with the acquire of a look-up.
    start: AtomicUsize,
    bytes: AtomicUsize,
}

/// See the module.
pub struct Outside {
    places: [Place; PLACES],
}

const FREE: usize = 0;
const FILLING: usize = 1;

impl Outside {
    /// No block.
    pub const fn new() -> Self {
        Self { places: [const { Place { start: AtomicUsize::new(FREE), bytes: AtomicUsize::new(0) } }; PLACES] }
    }

    /// A block of at least `size` bytes, zero, aligned to `align`. `None` if the kernel or the table
    /// has no room.
    pub fn allocate<O: Os>(&self, os: &O, size: usize, align: usize) -> Option<usize> {
        let bytes = size.max(1).checked_next_multiple_of(GRANULE)?;
        let place = self.places.iter().find(|place| {
            place.start.load(Ordering::Relaxed) == FREE
                && place.start.compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        let start = os.reserve(bytes, align.max(GRANULE)).ok().map_or(0, |start| start.as_ptr() as usize);
        // SAFETY: reserved just above.
        if start == 0 || unsafe { os.commit(start, bytes) }.is_err() {
            if start != 0 {
                // SAFETY: no thread knows it yet.
                unsafe { os.release(start, bytes) };
            }
            place.start.store(FREE, Ordering::Release);
            return None;
        }
        place.bytes.store(bytes, Ordering::Relaxed);
        place.start.store(start, Ordering::Release);
        Some(start)
    }

    /// Size of the block at `address`; `None` if there is none.
    pub fn size(&self, address: usize) -> Option<usize> {
        self.place(address).map(|place| place.bytes.load(Ordering::Relaxed))
    }

    /// Frees the block at `address`. False if there is none.
    pub fn free<O: Os>(&self, os: &O, address: usize) -> bool {
        let Some(place) = self.place(address) else {
            return false;
        };
        let bytes = place.bytes.load(Ordering::Relaxed);
        if place.start.compare_exchange(address, FILLING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        // SAFETY: the entry was ours to take, so the block is, and its owner frees it.
        unsafe { os.release(address, bytes) };
        place.start.store(FREE, Ordering::Release);
        true
    }

    /// Bytes in such blocks.
    pub fn bytes(&self) -> usize {
        let live = |place: &&Place| place.start.load(Ordering::Acquire) > FILLING;
        self.places.iter().filter(live).map(|place| place.bytes.load(Ordering::Relaxed)).sum()
    }

    fn place(&self, address: usize) -> Option<&Place> {
        if address <= FILLING {
            return None;
        }
        self.places.iter().find(|place| place.start.load(Ordering::Acquire) == address)
    }
}
