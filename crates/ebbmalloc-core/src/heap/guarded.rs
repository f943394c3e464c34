//! Sampled guards: a few blocks with a page of their own between two pages that fault. A freed block's page faults until the
//! place is used again, the oldest first. `runtime/guards.rs` says which blocks; `ebb_stats::guards` how they are read from
//! outside.
//!
//! Without locks: a place is claimed by an exchange of its state. A child of a fork has its parent's blocks.

use crate::base::corrupt::Corruption;
use crate::base::exact::usize_of;
use crate::os::{Os, Scarce};
use crate::size::{GRANULE, QUANTUM};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ebb_stats::guards::{DEPTH, PLACES, Record, state};

/// Most bytes of resident pages, where pages are large.
const MOST_BYTES: usize = 512 << 10;

/// What is known of a block: see [`Record`]. All words relaxed but the first, whose release pairs with the acquire of
/// a look at the rest.
#[repr(C)]
struct Place {
    state: AtomicU64,
    block: AtomicU64,
    bytes: AtomicU64,
    threads: [AtomicU64; 2],
    stacks: [[AtomicU64; DEPTH]; 2],
}

/// See the module.
#[repr(C)]
pub struct Guarded {
    /// Where its pages begin: 0 before the first block, [`NEVER`] if there is no room. Released once they are there.
    start: AtomicUsize,
    page_bytes: AtomicUsize,
    next: AtomicUsize,
    places: [Place; PLACES],
}

const _: () = {
    use ebb_stats::guards::{POOL_WORDS, RECORD_WORDS};
    assert!(size_of::<Place>() == 8 * RECORD_WORDS);
    assert!(core::mem::offset_of!(Guarded, places) == 8 * POOL_WORDS);
};

const NEVER: usize = 1;

/// Who does something with a block.
#[derive(Clone, Copy)]
pub struct By<'a> {
    /// The kernel's id of the thread.
    pub thread: u32,
    /// Return addresses, the innermost first.
    pub stack: &'a [usize],
}

impl By<'_> {
    /// Not known.
    pub const UNKNOWN: By<'static> = By { thread: 0, stack: &[] };
}

impl Guarded {
    /// No block.
    pub const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            page_bytes: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            places: [const {
                Place {
                    state: AtomicU64::new(state::EMPTY),
                    block: AtomicU64::new(0),
                    bytes: AtomicU64::new(0),
                    threads: [const { AtomicU64::new(0) }; 2],
                    stacks: [const { [const { AtomicU64::new(0) }; DEPTH] }; 2],
                }
            }; PLACES],
        }
    }

    /// Whether `address` lies in the pool.
    #[inline]
    pub fn owns(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        start > NEVER && address.wrapping_sub(start) < self.pool_bytes()
    }

    /// A block of `size` bytes, at most a page, aligned to 16: at the end of its page, every other one at the beginning.
    /// `None` if all places have live blocks, or the kernel refuses.
    pub fn allocate<O: Os>(&self, os: &O, size: usize, by: By) -> Option<usize> {
        let start = self.start_or_reserve(os)?;
        let page = self.page_bytes.load(Ordering::Relaxed);
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let places = PLACES.min(MOST_BYTES / page);
        let (index, place) = (first..first + places).find_map(|index| {
            let place = &self.places[index % places];
            let is_free = |state| (state == state::EMPTY || state == state::FREED).then_some(state::CHANGING);
            place.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, is_free).ok()?;
            Some((index % places, place))
        })?;
        let at = start + (2 * index + 1) * page;
        // SAFETY: the page is the place's, which is ours since the exchange; it was reserved, or given up when it was freed.
        if unsafe { os.take_back(at, page, Scarce::Charge) }.is_err() {
            place.state.store(state::EMPTY, Ordering::Release);
            return None;
        }
        let room = page.checked_sub(size.max(1).next_multiple_of(QUANTUM))?;
        let block = at + if first.is_multiple_of(2) { room } else { 0 };
        place.block.store(block as u64, Ordering::Relaxed);
        place.bytes.store(size as u64, Ordering::Relaxed);
        place.note(0, by);
        place.note(1, By::UNKNOWN);
        place.state.store(state::LIVE, Ordering::Release);
        Some(block)
    }

    /// Bytes of the live block at `address`, which lies in the pool.
    pub fn size(&self, address: usize) -> Result<usize, Corruption> {
        let place = self.place(address).ok_or(Corruption::NoBlock)?;
        let found = place.state.load(Ordering::Acquire);
        match place.block.load(Ordering::Relaxed) == address as u64 {
            true if found == state::LIVE => Ok(usize_of(place.bytes.load(Ordering::Relaxed))),
            true => Err(Corruption::DoubleFree),
            false => Err(Corruption::InteriorPointer),
        }
    }

    /// Frees the block at `address`, which lies in the pool.
    pub fn free<O: Os>(&self, os: &O, address: usize, by: By) -> Result<(), Corruption> {
        self.size(address)?;
        let place = self.place(address).ok_or(Corruption::NoBlock)?;
        let (live, changing) = (state::LIVE, state::CHANGING);
        if place.state.compare_exchange(live, changing, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(Corruption::DoubleFree);
        }
        place.note(1, by);
        let page = self.page_bytes.load(Ordering::Relaxed);
        // Where the kernel refuses, the page stays as it is.
        // SAFETY: the block was live, and its owner frees it.
        let _ = unsafe { os.give_up(address & !(page - 1), page, Scarce::Charge) };
        place.state.store(state::FREED, Ordering::Release);
        Ok(())
    }

    /// Bytes in live blocks.
    pub fn live_bytes(&self) -> usize {
        let live = |place: &&Place| place.state.load(Ordering::Relaxed) == state::LIVE;
        self.places.iter().filter(live).map(|place| usize_of(place.bytes.load(Ordering::Relaxed))).sum()
    }

    /// What is known of the block of the page that `address` lies in or next to.
    pub fn record(&self, address: usize) -> Option<Record> {
        let place = self.place(address)?;
        let stack = |of: usize| core::array::from_fn(|at| place.stacks[of][at].load(Ordering::Relaxed));
        Some(Record {
            state: place.state.load(Ordering::Acquire),
            block: place.block.load(Ordering::Relaxed),
            bytes: place.bytes.load(Ordering::Relaxed),
            threads: [0, 1].map(|of: usize| place.threads[of].load(Ordering::Relaxed)),
            stacks: [stack(0), stack(1)],
        })
    }

    fn pool_bytes(&self) -> usize {
        let page = self.page_bytes.load(Ordering::Relaxed).max(1);
        page * (2 * PLACES.min(MOST_BYTES / page) + 1)
    }

    fn place(&self, address: usize) -> Option<&Place> {
        let offset = address.wrapping_sub(self.start.load(Ordering::Acquire));
        self.places.get(offset / self.page_bytes.load(Ordering::Relaxed).max(1) / 2)
    }

    fn start_or_reserve<O: Os>(&self, os: &O) -> Option<usize> {
        match self.start.load(Ordering::Acquire) {
            0 => {}
            NEVER => return None,
            start => return Some(start),
        }
        // Relaxed: a thread that comes second gets no block this time.
        self.start.compare_exchange(0, NEVER, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        self.page_bytes.store(os.page_bytes(), Ordering::Relaxed);
        let bytes = self.pool_bytes().next_multiple_of(GRANULE);
        let start = os.reserve(bytes, GRANULE).ok()?.as_ptr() as usize;
        self.start.store(start, Ordering::Release);
        Some(start)
    }
}

impl Place {
    fn note(&self, which: usize, by: By) {
        self.threads[which].store(u64::from(by.thread), Ordering::Relaxed);
        for (index, word) in self.stacks[which].iter().enumerate() {
            let frame = by.stack.get(index).copied().unwrap_or(0);
            word.store(frame as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::os::fake::Fake;

    #[test]
    fn a_block_is_known_until_its_place_is_used_again() {
        let os = Fake::new(4096);
        let pool = Guarded::new();
        let by = By { thread: 7, stack: &[1, 2] };
        let block = pool.allocate(&os, 100, by).unwrap();
        assert!(pool.owns(block) && (block + 112).is_multiple_of(os.page_bytes()));
        assert_eq!(pool.size(block), Ok(100));
        assert_eq!(pool.size(block + 16), Err(Corruption::InteriorPointer));
        assert_eq!(pool.free(&os, block, by), Ok(()));
        assert_eq!(pool.free(&os, block, by), Err(Corruption::DoubleFree));
        let places = PLACES.min(MOST_BYTES / os.page_bytes());
        let blocks: Vec<_> = (0..places).map(|_| pool.allocate(&os, 8, by).unwrap()).collect();
        assert_eq!(pool.allocate(&os, 8, by), None);
        assert_eq!(pool.live_bytes(), 8 * places);
        for block in blocks {
            assert_eq!(pool.free(&os, block, by), Ok(()));
        }
        let record = pool.record(block).unwrap();
        assert_eq!((record.state, record.threads, record.stacks[1][1]), (state::FREED, [7, 7], 2));
    }

    #[test]
    fn without_memory_there_is_no_block() {
        let os = Fake::new(4096);
        let pool = Guarded::new();
        let block = pool.allocate(&os, 1, By::UNKNOWN).unwrap();
        assert_eq!(pool.free(&os, block, By::UNKNOWN), Ok(()));
        assert!(!Guarded::new().owns(block));
    }
}
