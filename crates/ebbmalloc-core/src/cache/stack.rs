//! The stacks of free slots that a cache keeps, one for each class, and what the thread's requests have shown of a class.
//! How a stack grows and shrinks is in `stack_memory.rs`.

use crate::size::{CLASSES, QUICK_MAX, class_of};
use core::ptr::null_mut;

/// The classes that have rations are those up to this one: all of the quick table.
pub const RATIONED: usize = class_of(QUICK_MAX);

/// A slot in a stack: the address of a free slot of the heap.
pub type Entry = *mut u8;

/// If a stack was flushed so often since it was last empty, its thread is freeing a mass of blocks.
const FLUSHES_OF_MASS: u8 = 2;
/// The largest refill.
const BATCH_MAX: u8 = 128;

/// The stacks of all classes, word by word: so the fast path finds a class's words by the class number
/// alone, without a multiplication, and the tops of neighbouring classes share a cache line. Entry 0,
/// which is no class, is always empty and full.
#[derive(Debug)]
#[repr(C)]
pub struct Stacks {
    /// [`Stack::top`] by class, then those of rations.
    pub top: [*mut Entry; CLASSES + 1 + RATIONED],
    /// [`Stack::low`] by class, then those of rations.
    pub low: [*mut Entry; CLASSES + 1 + RATIONED],
    /// [`Stack::full`] by class.
    pub full: [*mut Entry; CLASSES + 1],
    base: [*mut Entry; CLASSES + 1],
}

impl Stacks {
    /// Where in them the bases are.
    pub const BASES: usize = core::mem::offset_of!(Self, base);

    /// Stacks that hold nothing and can hold nothing.
    pub const NONE: Self = {
        let none = [null_mut(); CLASSES + 1];
        Self {
            top: [null_mut(); CLASSES + 1 + RATIONED],
            low: [null_mut(); CLASSES + 1 + RATIONED],
            full: none,
            base: none,
        }
    };

    /// The stack of a class.
    pub fn get(&self, class: usize) -> Stack {
        Stack { top: self.top[class], low: self.low[class], full: self.full[class], base: self.base[class] }
    }

    /// Replaces the stack of a class.
    pub fn set(&mut self, class: usize, stack: Stack) {
        self.top[class] = stack.top;
        self.low[class] = stack.low;
        self.full[class] = stack.full;
        self.base[class] = stack.base;
    }
}

/// The stack of one class. Grows upwards; `base <= low <= top <= full`.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// The place after the newest entry.
    pub top: *mut Entry,
    /// Where a pop takes the slow path.
    pub low: *mut Entry,
    /// Where a push takes the slow path.
    pub full: *mut Entry,
    /// The oldest entry. The word before it is null for ever, so that the newest entry of an empty
    /// stack can be looked at.
    pub base: *mut Entry,
}

/// What a thread's requests have shown of a class.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Slots that the next refill takes: doubles with each refill, so that a thread that needs
    /// little holds little.
    pub batch: u8,
    /// The stack ran dry since it was last full: what a flush puts back will be wanted again.
    pub ran_dry: bool,
    /// Pops since the last tick that found the stack down at its mark.
    lowered: u8,
    /// Flushes since the stack ran dry.
    flushes: u8,
}

/// Entries by which the first pop at the mark lowers it.
const LEAST_STEP: usize = 4;
/// More entries than a stack can have.
const MOST_DOUBLINGS: u8 = 16;

impl Demand {
    /// Of a thread that has asked for nothing. With 6 slots short threads take 9 % fewer instructions, but 1000 threads with
    /// 20 blocks each hold 68 MB instead of 47.
    pub const FIRST: Self = Self { batch: 3, ran_dry: false, lowered: 0, flushes: 0 };

    /// After a refill.
    pub fn refilled(&mut self) {
        self.batch = self.batch.saturating_mul(2).min(BATCH_MAX);
        self.ran_dry = true;
        self.flushes = 0;
    }

    /// After a flush.
    pub fn flushed(&mut self) {
        self.flushes = self.flushes.saturating_add(1);
    }

    /// Whether the thread frees so much more than it takes that nothing is gained by keeping it.
    pub fn frees_a_mass(&self) -> bool {
        self.flushes >= FLUSHES_OF_MASS
    }

    /// A pop found the stack down at its mark: entries by which to lower that. Twice as many each time, so that
    /// few pops of a tick take the slow path, and what stays is about what is used.
    pub fn lower(&mut self) -> usize {
        let step = LEAST_STEP << self.lowered;
        self.lowered = (self.lowered + 1).min(MOST_DOUBLINGS);
        step
    }

    /// The mark was set anew.
    pub fn marked(&mut self) {
        self.lowered = 0;
    }

    /// After a drain that found something cold.
    pub fn was_cold(&mut self) {
        self.batch = (self.batch / 2).max(Self::FIRST.batch);
    }
}

impl Stack {
    /// Whether the stack can hold nothing: each slot goes to its bin at once.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.full == self.base
    }

    /// Entries on the stack.
    #[inline]
    pub fn len(&self) -> usize {
        (self.top as usize - self.base as usize) / size_of::<Entry>()
    }

    /// Whether the stack has no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.top == self.base
    }

    /// Entries that were not touched since the mark was set.
    #[inline]
    pub fn cold(&self) -> usize {
        (self.low as usize - self.base as usize) / size_of::<Entry>()
    }

    /// Most entries.
    #[inline]
    pub fn capacity(&self) -> usize {
        (self.full as usize - self.base as usize) / size_of::<Entry>()
    }

    /// The oldest `count` entries.
    ///
    /// # Safety
    /// `count <= len()`, and the caller has the cache to itself.
    #[inline]
    pub unsafe fn oldest<'a>(&self, count: usize) -> &'a [Entry] {
        // SAFETY: the entries between base and top are initialised.
        unsafe { core::slice::from_raw_parts(self.base, count) }
    }

    /// Forgets the oldest `count` entries; the others move down.
    ///
    /// # Safety
    /// As for [`Stack::oldest`].
    pub unsafe fn drop_oldest(&mut self, count: usize) {
        let rest = self.len() - count;
        // SAFETY: both ranges lie in the stack.
        unsafe { core::ptr::copy(self.base.wrapping_add(count), self.base, rest) };
        self.top = self.base.wrapping_add(rest);
        let cold = self.cold();
        self.low = self.base.wrapping_add(cold.saturating_sub(count).min(rest));
    }
}
