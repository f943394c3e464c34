//! Linux: [`GlobalAlloc`] over [`ebbmalloc_core::runtime`].

pub(crate) mod pprof;

use std::alloc::{GlobalAlloc, Layout};

use ebbmalloc_core::runtime::{self, Maker, Sized};

const MALLOC: u8 = Maker::Malloc as u8;

use crate::Ebbmalloc;

/// An unconditional jump, for names that the assembler defines.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($to:literal) => {
        concat!("jmp ", $to)
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($to:literal) => {
        concat!("b ", $to)
    };
}

mod hooks;

// Linked for the names it defines.
#[cfg(feature = "override-c")]
extern crate ebbmalloc_capi as _;

/// Every block is aligned to this.
const PLAIN_ALIGN: usize = 16;

// SAFETY: blocks are as large and as aligned as asked for, and belong to the caller until they are freed;
// no method unwinds.
unsafe impl GlobalAlloc for Ebbmalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PLAIN_ALIGN {
            return aligned(layout);
        }
        match runtime::malloc_from_cache(layout.size()) {
            Some(block) => block.as_ptr(),
            None => plain(layout.size()),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PLAIN_ALIGN {
            return aligned_zeroed(layout);
        }
        zeroed(layout.size())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // The look-up of the class is one load, and finds a wrong pointer. Strict mode checks the size.
        // SAFETY: the block came from this allocator and is not used again (contract of `GlobalAlloc`).
        unsafe { runtime::free_as(block, Sized::<MALLOC>(layout.size())) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() > PLAIN_ALIGN {
            // SAFETY: `resize_aligned` has the contract of `GlobalAlloc::realloc`, and the arguments are passed on
            // unchanged.
            return unsafe { resize_aligned(block, layout, size) };
        }
        // SAFETY: the block is live and from this allocator, and neither it nor the size is null (contract of `GlobalAlloc`).
        unsafe { runtime::realloc(block, size) }
    }
}

// The following are not inlined into other crates: with them come the hooks that the core needs,
// whichever linker resolves the names.

#[inline(never)]
fn plain(size: usize) -> *mut u8 {
    hooks::keep();
    runtime::malloc_slow(size)
}

#[inline(never)]
fn zeroed(size: usize) -> *mut u8 {
    hooks::keep();
    match runtime::malloc_zeroed_from_cache(size) {
        Some(block) => block.as_ptr(),
        None => runtime::malloc_zeroed(size),
    }
}

#[inline(never)]
fn aligned(layout: Layout) -> *mut u8 {
    hooks::keep();
    let (align, size) = (layout.align(), layout.size());
    match runtime::memalign_from_cache(align, size) {
        Some(block) => block.as_ptr(),
        None => runtime::memalign(align, size),
    }
}

#[inline(never)]
fn aligned_zeroed(layout: Layout) -> *mut u8 {
    let block = aligned(layout);
    if !block.is_null() {
        // SAFETY: the block is new and has as many bytes.
        unsafe { block.write_bytes(0, layout.size()) };
    }
    block
}

/// A block with an alignment of its own stays where it is as long as it fits and is at least half
/// used; else it moves.
///
/// # Safety
/// As for [`GlobalAlloc::realloc`].
#[inline(never)]
unsafe fn resize_aligned(block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    // SAFETY: the block is live and from this allocator (contract of `GlobalAlloc::realloc`).
    let usable = unsafe { runtime::usable_size(block) };
    if size <= usable && size >= usable / 2 {
        return block;
    }
    let moved = runtime::memalign(layout.align(), size);
    if !moved.is_null() {
        // SAFETY: both blocks have as many bytes, and are apart; the old one is not used any more.
        unsafe {
            moved.copy_from_nonoverlapping(block, layout.size().min(size));
            runtime::free(block);
        }
    }
    moved
}
