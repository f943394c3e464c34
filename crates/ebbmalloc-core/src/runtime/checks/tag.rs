//! What strict mode writes around a block, and reads again: two words before it, and up to 32 bytes after it.
//!
//! | word | what |
//! |---|---|
//! | facts, 16 bytes before the block | the size that was asked for, who made it, where its memory begins, guarded or not |
//! | check, 8 bytes before | of the facts, the address and a secret; another when the block is freed |
//! | canary, after the block to the end of its slot, and 16 bytes before the tag where there is room | of the address and the secret |
//!
//! No byte of check and canary is zero, so that a zero written next to the block is seen.

use super::super::instance::HEAP;
use crate::base::exact::{u32_of, usize_of};
use crate::os::Os;
use crate::size::QUANTUM;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the two words, and the least that is after a small block.
pub const TAG: usize = 16;
/// Bytes of canary after a block at most.
pub const CANARY: usize = 32;

/// Which function made a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Maker {
    /// `malloc` and its kin.
    Malloc,
    /// `operator new`.
    New,
    /// `operator new[]`.
    NewArray,
}

impl Maker {
    /// By its number.
    pub const fn of(number: u8) -> Self {
        match number {
            0 => Self::Malloc,
            1 => Self::New,
            _ => Self::NewArray,
        }
    }

    /// Its name, and that of the function that frees.
    pub const fn names(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Self::Malloc => (b"malloc", b"free"),
            Self::New => (b"operator new", b"operator delete"),
            Self::NewArray => (b"operator new[]", b"operator delete[]"),
        }
    }
}

/// A block's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not freed.
    Live,
    /// Freed, and not handed out again.
    Freed,
}

/// What the words before a block say.
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    /// As asked for.
    pub size: usize,
    /// Who made it.
    pub maker: Maker,
    /// Bytes from the beginning of the memory to the block: a multiple of 16, at most a granule.
    pub front: usize,
    /// Whether a page that faults is after the block.
    pub guarded: bool,
    /// Bytes of canary right after the block: at most [`CANARY`].
    pub behind: usize,
}

/// The longest block that has a tag is shorter.
pub const SIZE_END: usize = 1 << 42;

impl Tag {
    #[inline(always)]
    fn facts(&self) -> u64 {
        (self.size as u64) << 22
            | (self.behind as u64) << 16
            | ((self.front / QUANTUM) as u64) << 3
            | u64::from(self.guarded) << 2
            | self.maker as u64
    }

    #[inline(always)]
    fn of_facts(facts: u64) -> Self {
        Self {
            size: usize_of(facts >> 22),
            maker: Maker::of((facts & 3) as u8),
            front: usize_of(facts >> 3 & 0x1fff) * QUANTUM,
            guarded: facts & 4 != 0,
            behind: usize_of(facts >> 16 & 0x3f),
        }
    }

    #[inline(always)]
    fn has_canary_before(&self) -> bool {
        self.front >= 2 * TAG
    }
}

/// Drawn once; another in each process.
static SECRET: AtomicU64 = AtomicU64::new(0);

/// Draws the secret. At boot.
pub fn draw_secret() {
    let place = &raw const SECRET as u64;
    let seed = place ^ HEAP.os.thread_cpu_ns() << 20 ^ HEAP.os.now_ms() << 44;
    SECRET.store(mix(seed, u64::from(HEAP.os.process_id())), Ordering::Relaxed);
}

/// One odd number per byte.
const ODD: u64 = 0x0101_0101_0101_0101;

const fn mix(a: u64, b: u64) -> u64 {
    let product = (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 29
}

/// Where a block with a tag is, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The block's address.
    pub block: usize,
    /// What the bytes next to it hold: of the byte at an address the one with the number `address % 8`.
    canary: u64,
}

impl Place {
    /// At an address.
    #[inline(always)]
    pub fn at(block: usize) -> Self {
        Self { block, canary: mix(block as u64, SECRET.load(Ordering::Relaxed)) | ODD }
    }

    /// Writes the tag of a new block, and the bytes next to it.
    ///
    /// # Safety
    /// The memory from the tag to the end of the bytes after the block is the caller's alone.
    #[inline(always)]
    pub unsafe fn write(self, tag: &Tag) {
        let facts = tag.facts();
        // SAFETY: the memory is the caller's (fn contract).
        unsafe {
            if tag.has_canary_before() {
                self.word(4).write(self.canary);
                self.word(3).write(self.canary);
            }
            self.behind(tag).fill(self.canary);
            self.word(2).write(facts);
            // Release: pairs with the load in `read` on another thread.
            self.check().store(self.check_of(facts), Ordering::Release);
        }
    }

    /// Reads the tag; `None` if there is none, or it was overwritten.
    ///
    /// # Safety
    /// Its 16 bytes can be read.
    #[inline(always)]
    pub unsafe fn read(self) -> Option<(Tag, State)> {
        // SAFETY: the words can be read (fn contract).
        let (facts, check) = unsafe { (self.word(2).read(), self.check().load(Ordering::Acquire)) };
        let state = match check ^ self.check_of(facts) {
            0 => State::Live,
            FREED => State::Freed,
            _ => return None,
        };
        Some((Tag::of_facts(facts), state))
    }

    /// Whether the tag has no byte that was written.
    ///
    /// # Safety
    /// As for [`Place::read`].
    pub unsafe fn is_blank(self) -> bool {
        // SAFETY: the words can be read (fn contract).
        unsafe { self.word(2).read() == 0 && self.word(1).read() == 0 }
    }

    /// Makes a live block a freed one. Two threads that do so at once keep the block twice, which is seen when it leaves.
    ///
    /// # Safety
    /// [`Place::read`] found the tag.
    #[inline(always)]
    pub unsafe fn begin_free(self, tag: &Tag) {
        let freed = self.check_of(tag.facts()) ^ FREED;
        // Release: pairs with the load in `read`; who sees the bytes cleared sees the state.
        // SAFETY: the word can be read and written (fn contract).
        unsafe { self.check().store(freed, Ordering::Release) };
    }

    /// On which side of the block bytes are not as they were written.
    ///
    /// # Safety
    /// The block was tagged so, and its memory can be read.
    #[inline(always)]
    pub unsafe fn find_overwritten(self, tag: &Tag) -> Option<&'static [u8]> {
        // SAFETY: the bytes next to the block are its own memory (fn contract).
        unsafe {
            if self.behind(tag).differs(self.canary) {
                return Some(b"after");
            }
            let before =
                tag.has_canary_before() && (self.word(4).read() ^ self.canary | self.word(3).read() ^ self.canary) != 0;
            before.then_some(b"before")
        }
    }

    /// Clears a freed block without a guard, and what is after it.
    ///
    /// # Safety
    /// The block was tagged so, and is the caller's alone.
    #[inline(always)]
    pub unsafe fn clear(self, tag: &Tag) {
        const FEW: usize = 512;
        let bytes = (tag.size + tag.behind).next_multiple_of(QUANTUM);
        // SAFETY: slots, and the memory of large blocks, end at multiples of 16.
        unsafe {
            if bytes > FEW {
                return (self.block as *mut u8).write_bytes(0, bytes);
            }
            // Volatile, so that the loop does not become a call.
            for at in (self.block..self.block + bytes).step_by(QUANTUM) {
                (at as *mut u64).write_volatile(0);
                (at as *mut u64).add(1).write_volatile(0);
            }
        }
    }

    /// Whether one of the first `bytes` bytes of a cleared block is not zero.
    ///
    /// # Safety
    /// The block was cleared, and is as long.
    #[inline(always)]
    pub unsafe fn is_written(self, bytes: usize) -> bool {
        // SAFETY: what is after a block was cleared as well.
        let words = unsafe { core::slice::from_raw_parts(self.block as *const [u64; 2], bytes.div_ceil(QUANTUM)) };
        words.iter().fold(0, |sum, [a, b]| sum | a | b) != 0
    }

    #[inline(always)]
    fn behind(self, tag: &Tag) -> Run {
        Run { start: self.block + tag.size, bytes: tag.behind }
    }

    /// Where eight bytes are that a write next to the block changes first, and what they hold: right before it, and right
    /// after it if there is as much canary.
    ///
    /// # Safety
    /// As for [`Place::read`].
    #[inline(always)]
    pub unsafe fn first_beside(self, tag: &Tag) -> [(usize, u64); 2] {
        let behind = (self.block + tag.size, at_phase(self.canary, self.block + tag.size));
        // SAFETY: the word can be read (fn contract).
        let before = (self.word(1) as usize, unsafe { self.word(1).read() });
        [before, if tag.behind < 8 { before } else { behind }]
    }

    #[inline(always)]
    fn check_of(self, facts: u64) -> u64 {
        mix(self.canary, facts) | ODD
    }

    /// The word that begins so many words before the block.
    #[inline(always)]
    fn word(self, words: usize) -> *mut u64 {
        self.block.wrapping_sub(8 * words) as *mut u64
    }

    /// # Safety
    /// The word can be read and written as long as the result is used.
    #[inline(always)]
    unsafe fn check<'a>(self) -> &'a AtomicU64 {
        // SAFETY: a block is aligned to 16, and this word is used as an atomic alone.
        unsafe { AtomicU64::from_ptr(self.word(1)) }
    }
}

/// What distinguishes the check of a freed block.
const FREED: u64 = ODD << 1;

/// Up to 32 bytes of canary.
#[derive(Clone, Copy)]
struct Run {
    start: usize,
    bytes: usize,
}

impl Run {
    /// What covers a run of 16 bytes or more, in part twice: where two words begin, and what they hold.
    #[inline(always)]
    fn words(self, canary: u64) -> [(usize, u64); 2] {
        let end = self.start + self.bytes;
        [self.start, end - 16].map(|at| (at, at_phase(canary, at)))
    }

    /// # Safety
    /// The bytes can be written, and belong to nothing else.
    #[inline(always)]
    unsafe fn fill(self, canary: u64) {
        if self.bytes < 16 {
            // SAFETY: the fn contract.
            return unsafe { self.fill_few(canary) };
        }
        for (at, word) in self.words(canary) {
            // SAFETY: within the run.
            unsafe { (at as *mut [u64; 2]).write_unaligned([word; 2]) };
        }
    }

    #[cold]
    unsafe fn fill_few(self, canary: u64) {
        for at in self.start..self.start + self.bytes {
            // SAFETY: within the run, which the caller owns.
            unsafe { (at as *mut u8).write(canary.to_le_bytes()[at % 8]) };
        }
    }

    /// # Safety
    /// The bytes can be read.
    #[inline(always)]
    unsafe fn differs(self, canary: u64) -> bool {
        if self.bytes < 16 {
            // SAFETY: the fn contract.
            return unsafe { self.few_differ(canary) };
        }
        let differs = |(at, word)| {
            // SAFETY: within the run.
            let [a, b] = unsafe { (at as *const [u64; 2]).read_unaligned() };
            a ^ word | b ^ word
        };
        self.words(canary).into_iter().fold(0, |sum, pair| sum | differs(pair)) != 0
    }

    #[cold]
    unsafe fn few_differ(self, canary: u64) -> bool {
        (self.start..self.start + self.bytes)
            // SAFETY: within the run, which can be read.
            .any(|at| unsafe { (at as *const u8).read() } != canary.to_le_bytes()[at % 8])
    }
}

/// The word of canary at an address (little-endian, as all that this runs on).
#[inline(always)]
fn at_phase(canary: u64, address: usize) -> u64 {
    canary.rotate_right(u32_of(address % 8 * 8))
}
