//! Systems without ebbmalloc: requests go to the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::Ebbmalloc;

// SAFETY: each function passes its arguments on to `System`, which keeps the contract.
unsafe impl GlobalAlloc for Ebbmalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout has a size, by `GlobalAlloc`'s contract, which `System` shares.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout has a size, by `GlobalAlloc`'s contract, which `System` shares.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: every block of this allocator is one of `System`'s, and the caller passes the layout it asked for.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: every block of this allocator is one of `System`'s; layout and size are passed on unchanged.
        unsafe { System.realloc(block, layout, size) }
    }
}
