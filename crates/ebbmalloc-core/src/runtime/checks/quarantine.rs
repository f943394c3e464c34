//! Where freed blocks wait: each thread has a ring of its own. A block takes a random place, and the block that was there
//! leaves. So no thread can tell which block is handed out next.
//!
//! A signal handler of the thread may come in at any time: while a place changes, a block of the handler's does not wait.

use super::super::instance::HEAP;
use super::report;
use super::tag::{Place, State, Tag};
use crate::os::Os;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence};

/// Blocks of up to so many bytes have the most places.
const SMALL: usize = 1024;

/// See the module. Used by its thread alone, signal handlers included: relaxed.
#[derive(Default)]
pub struct Ring {
    small: Places<256>,
    medium: Places<64>,
    large: Places<16>,
    random: AtomicU64,
    /// A place is being changed.
    is_changing: AtomicBool,
    /// The block that the thread allocated last; 0 if it was freed.
    newest: AtomicUsize,
    /// Where eight bytes next to it are, and what they hold.
    beside: [(AtomicUsize, AtomicU64); 2],
    /// The block that the thread freed last, if it is in the ring and can be read.
    freed: AtomicUsize,
}

struct Places<const N: usize>([AtomicUsize; N]);

impl<const N: usize> Default for Places<N> {
    fn default() -> Self {
        Self([const { AtomicUsize::new(0) }; N])
    }
}

impl Ring {
    /// An empty ring; `seed` should be another for each.
    pub fn new(seed: u64) -> Self {
        Self { random: AtomicU64::new(seed | 1), ..Self::default() }
    }

    /// Keeps a freed block; the block that leaves for it, which may be the same, or 0.
    #[inline]
    pub fn keep(&self, place: Place, tag: &Tag) -> usize {
        if self.is_changing.load(Ordering::Relaxed) {
            return place.block;
        }
        self.is_changing.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // Marsaglia's xorshift.
        let mut random = self.random.load(Ordering::Relaxed);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.store(random, Ordering::Relaxed);
        let places = match tag.size {
            0..=SMALL => &self.small.0[..],
            _ if tag.guarded => &self.large.0,
            _ => &self.medium.0,
        };
        let at = (random >> 32) as usize % places.len();
        self.freed.store(if tag.guarded { 0 } else { place.block }, Ordering::Relaxed);
        let leaving = places[at].load(Ordering::Relaxed);
        places[at].store(place.block, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.is_changing.store(false, Ordering::Relaxed);
        leaving
    }

    /// The block that the thread allocated last, if it has not freed it.
    #[inline]
    pub fn newest(&self) -> Option<Place> {
        let block = self.newest.load(Ordering::Relaxed);
        (block != 0).then(|| Place::at(block))
    }

    /// Sets that.
    ///
    /// # Safety
    /// The block has this tag.
    #[inline]
    pub unsafe fn set_newest(&self, place: Place, tag: &Tag) {
        self.newest.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the block has a tag (fn contract).
        let beside = unsafe { place.first_beside(tag) };
        for ((at, word), (now_at, now)) in self.beside.iter().zip(beside) {
            at.store(now_at, Ordering::Relaxed);
            word.store(now, Ordering::Relaxed);
        }
        compiler_fence(Ordering::SeqCst);
        self.newest.store(place.block, Ordering::Relaxed);
    }

    /// Nothing is known of the newest block.
    #[inline]
    pub fn forget_newest(&self) {
        self.newest.store(0, Ordering::Relaxed);
    }

    /// The block is not live any more.
    #[inline]
    pub fn forget(&self, place: Place) {
        if self.newest.load(Ordering::Relaxed) == place.block {
            self.forget_newest();
        }
    }

    /// Whether bytes right next to the newest block were overwritten, if the thread is alone; and the first bytes of the
    /// block that was freed last. A signal handler may have freed a block since it was noted: ask again.
    ///
    /// # Safety
    /// If the thread is alone, no other has freed the newest block.
    #[inline]
    pub unsafe fn looks_wrong(&self, is_alone: bool) -> (bool, bool) {
        let newest = is_alone
            && self.newest.load(Ordering::Relaxed) != 0
            && self.beside.iter().any(|(at, word)| {
                let at = at.load(Ordering::Relaxed) as *const u64;
                // SAFETY: next to a live block (fn contract).
                unsafe { at.read_unaligned() != word.load(Ordering::Relaxed) }
            });
        let freed = self.freed.load(Ordering::Relaxed);
        // SAFETY: the block is in the ring, so its memory is there.
        (newest, freed != 0 && unsafe { (freed as *const [u64; 2]).read() } != [0; 2])
    }

    /// The block that the thread freed last, if it waits here and can be read.
    pub fn freed(&self) -> Option<Place> {
        let block = self.freed.load(Ordering::Relaxed);
        (block != 0).then(|| Place::at(block))
    }

    /// Takes all blocks out.
    pub fn take_all(&self, mut each: impl FnMut(usize)) {
        self.freed.store(0, Ordering::Relaxed);
        let places = self.small.0.iter().chain(&self.medium.0).chain(&self.large.0);
        for place in places {
            match place.swap(0, Ordering::Relaxed) {
                0 => {}
                block => each(block),
            }
        }
    }
}

/// The memory of a block that has waited; ends the process if it was written to. `None`: the kernel does not give the
/// pages back that it guards, and they are lost.
#[inline]
pub fn release(block: usize) -> Option<*mut u8> {
    let place = Place::at(block);
    // SAFETY: the block waited, so its memory is there.
    let Some((tag, State::Freed)) = (unsafe { place.read() }) else {
        report::no_block(b"check", block, b"the bytes before it were overwritten after free");
    };
    // SAFETY: it was cleared when it was freed.
    unsafe {
        if !tag.guarded {
            if place.is_written(tag.size) {
                report::block(b"written after free: ", place, &tag);
            }
        } else if !unguard(place, &tag) {
            return None;
        }
    }
    Some((block - tag.front) as *mut u8)
}

/// Makes the pages of a guarded block ordinary ones: those from its second on, or its only one.
fn unguard(place: Place, tag: &Tag) -> bool {
    let page = HEAP.os.page_bytes();
    let start = place.block.next_multiple_of(page);
    let end = (place.block + tag.size).next_multiple_of(page) + page;
    // SAFETY: the pages of a block that no thread uses any more, as they were guarded.
    unsafe { HEAP.os.unbar(start, end - start) }
}
