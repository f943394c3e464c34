//! Systems without ebbmalloc: requests go to the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::Ebbmalloc;

// SAFETY: the system's allocator keeps the contract.
unsafe impl GlobalAlloc for Ebbmalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as demanded of our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as demanded of our caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as demanded of our caller.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as demanded of our caller.
        unsafe { System.realloc(block, layout, size) }
    }
}
