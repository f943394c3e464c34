//! What the profile keeps: stacks, threads, what a thread allocated from a stack, and the samples, each a
//! piece of metadata memory; and their sums. Linked and changed by [`super::table`], under its lock.

use super::interval::Weight;
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::os::Os;
use core::mem::offset_of;
use core::ptr::NonNull;
use ebb_stats::profile::{PYTHON, STACK_WORDS, TALLY_WORDS};

/// Sums of a stack, a thread, or all.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// What is live.
    pub live: Weight,
    /// What was ever allocated, with `prof_accum`.
    pub all: Weight,
}

impl Sums {
    pub(super) fn add(&mut self, other: Self) {
        self.live.add(other.live);
        self.all.add(other.all);
    }
}

/// Counts of samples, as they are printed: objects and bytes, live and ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    pub(super) live: (u64, u64),
    pub(super) all: (u64, u64),
}

impl Printed {
    pub(super) fn of(sums: &Sums, lg: u32) -> Self {
        Self { live: sums.live.as_samples(lg), all: sums.all.as_samples(lg) }
    }

    pub(super) fn add(&mut self, other: Self) {
        for (sum, more) in [(&mut self.live, other.live), (&mut self.all, other.all)] {
            *sum = (sum.0 + more.0, sum.1 + more.1);
        }
    }
}

/// A stack; its addresses follow it.
#[repr(C)]
pub struct Stack {
    pub(super) next: *mut Stack,
    pub(super) hash: u64,
    pub(super) depth: usize,
    pub(super) tallies: *mut Tally,
}

/// What one thread allocated from one stack.
#[repr(C)]
pub struct Tally {
    pub(super) next: *mut Tally,
    pub(super) stack: *mut Stack,
    pub(super) thread: *mut Thread,
    /// Live samples.
    pub(super) samples: u64,
    pub(super) sums: Sums,
}

/// A thread that was sampled.
pub struct Thread {
    pub(super) next: *mut Thread,
    pub(super) number: u64,
    pub(super) ended: bool,
    pub(super) tallies: usize,
    pub(super) name: *mut u8,
    pub(super) name_bytes: usize,
    /// For a dump: what it prints.
    pub(super) printed: Printed,
}

/// A sampled block.
pub struct Sample {
    pub(super) tally: *mut Tally,
    pub(super) epoch: u64,
    pub(super) weight: Weight,
    pub(super) block: usize,
    /// Usable bytes if the block is shorter than the memory that was taken for it, else 0.
    pub usable_bytes: usize,
}

// As `ebb_stats::profile` says, for readers in other processes.
const _: () = {
    assert!(size_of::<Stack>() == STACK_WORDS * 8 && offset_of!(Stack, tallies) == 24);
    assert!(size_of::<Tally>() == TALLY_WORDS * 8 && offset_of!(Tally, sums) == 32);
    assert!(Weight::ONE == ebb_stats::profile::OBJECT);
};

/// A block that was sampled.
#[derive(Clone, Copy)]
pub struct Sampled<'a> {
    /// The thread, from [`super::Profile::add_thread`].
    pub thread: NonNull<Thread>,
    /// Return addresses, the innermost first.
    pub frames: &'a [usize],
    /// Its address, and its usable bytes.
    pub block: (usize, usize),
    /// What it stands for.
    pub weight: Weight,
    /// Usable bytes if the block is shorter than the memory that was taken for it, else 0.
    pub usable_bytes: usize,
}

pub(super) fn hash_of(frames: &[usize]) -> u64 {
    ebb_stats::profile::hash(frames.iter().map(|&frame| frame as u64))
}

pub(super) const fn piece_bytes(bytes: usize) -> usize {
    bytes.next_power_of_two()
}

/// A new piece of metadata that holds `value`.
pub(super) fn place<O: Os, T>(os: &O, metadata: &Metadata, value: T) -> Option<*mut T> {
    let piece = metadata.allocate(os, size_of::<T>(), Wait::Yes)?.cast::<T>();
    // SAFETY: the piece is ours, long enough, and aligned to its size.
    unsafe { piece.write(value) };
    Some(piece.as_ptr())
}

/// # Safety
/// `piece` came from [`place`], and no thread uses it any more.
pub(super) unsafe fn give_back<O: Os, T>(os: &O, metadata: &Metadata, piece: *mut T) {
    if let Some(piece) = NonNull::new(piece.cast()) {
        // SAFETY: the piece came from `place` with the size of a `T`, and no thread uses it any more (fn contract).
        unsafe { metadata.free(os, piece, size_of::<T>(), false) };
    }
}

impl Stack {
    pub(super) const fn bytes(depth: usize) -> usize {
        size_of::<Self>() + depth * size_of::<usize>()
    }

    pub(super) fn first_frame(stack: *mut Self) -> *mut usize {
        stack.wrapping_add(1).cast()
    }

    /// # Safety
    /// `stack` is in the table, whose lock is held for `'a`.
    pub(super) unsafe fn frames<'a>(stack: *mut Self) -> &'a [usize] {
        // SAFETY: the addresses were written after the head when the stack was made.
        unsafe { core::slice::from_raw_parts(Self::first_frame(stack), (*stack).depth) }
    }

    /// Its return addresses alone, without frames of Python.
    ///
    /// # Safety
    /// As [`Stack::frames`].
    pub(super) unsafe fn addresses<'a>(stack: *mut Self) -> &'a [usize] {
        // SAFETY: the stack is in the table, whose lock is held for `'a` (fn contract).
        let frames = unsafe { Self::frames(stack) };
        frames.split(|&word| word as u64 == PYTHON).next().unwrap_or_default()
    }
}

impl Thread {
    /// The name that the thread gave itself.
    pub(super) fn name(&self) -> &[u8] {
        if self.name.is_null() {
            return b"";
        }
        // SAFETY: `set_name` made the piece and wrote that many bytes.
        unsafe { core::slice::from_raw_parts(self.name, self.name_bytes) }
    }
}
