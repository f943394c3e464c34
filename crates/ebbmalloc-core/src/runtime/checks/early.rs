//! Blocks from before the settings were read: they have no tag. The loader's and libc's, during the boot.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// More than any program has been seen to ask for.
const PLACES: usize = 64;

static BLOCKS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
/// The settings have been read. Relaxed: a thread that sees false only notes a block.
static OVER: AtomicBool = AtomicBool::new(false);

/// The settings have been read.
pub fn end() {
    OVER.store(true, Ordering::Relaxed);
}

/// Notes a new block without a tag, if the settings have not been read; returns it.
#[inline]
pub fn note(block: *mut u8) -> *mut u8 {
    if !OVER.load(Ordering::Relaxed) {
        replace(0, block as usize);
    }
    block
}

/// Whether the block was noted. It is forgotten.
pub fn take(block: usize) -> bool {
    replace(block, 0)
}

/// Whether the block was noted.
pub fn has(block: usize) -> bool {
    BLOCKS.iter().any(|place| place.load(Ordering::Relaxed) == block)
}

fn replace(old: usize, new: usize) -> bool {
    let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
    BLOCKS.iter().any(|place| place.compare_exchange(old, new, order, failed).is_ok())
}
