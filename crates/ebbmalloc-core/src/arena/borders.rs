//! Telling a program's hooks where its address space is cut and joined: the `split` and `merge` of extent
//! hooks. Called by the bookkeeping of extents, under the arena's lock; for the heap's own arena, and for
//! explicit ones without hooks, nothing is told.
//!
//! What is told of lies side by side without a gap: slabs, large blocks, free extents, and the rest of a
//! range that `alloc` gave. Each is cut from one and joined with one that was told of before.

use super::granule::Granule;
use super::hooks::ExtentHooks;
use crate::size::GRANULE;
use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;

/// Whom to tell.
pub struct Borders {
    hooks: *mut ExtentHooks,
    arena: c_uint,
    /// Nothing is joined: the purger's thread is at work, which is not the program's and calls no hook. It cuts
    /// nothing.
    pub(super) silent: bool,
}

impl Borders {
    /// Nobody.
    pub const NONE: Self = Self { hooks: null_mut(), arena: 0, silent: false };

    /// The program whose table of hooks this is, or null; its index for the arena.
    pub const fn new(hooks: *mut ExtentHooks, arena: u32) -> Self {
        Self { hooks, arena, silent: false }
    }

    /// Whether two free units side by side are always joined.
    #[cfg(test)]
    pub(super) fn joins_all(&self) -> bool {
        self.hooks.is_null()
    }

    /// Of `len` granules at `start` the first `first` become one unit, the rest another. False if the hook
    /// refuses: then a block stays as it is; but where a request is served, or pages go back, nobody obeys.
    pub(super) fn split(&self, start: usize, first: usize, len: usize) -> bool {
        if first == 0 || first == len {
            return true;
        }
        // SAFETY: null, or hooks that outlive the arena.
        if let Some(hooks) = unsafe { self.hooks.as_ref() }
            && let Some(split) = hooks.split
        {
            let address = start as *mut c_void;
            let (all, first) = (len * GRANULE, first * GRANULE);
            // SAFETY: as jemalloc's interface says; the range is the arena's.
            return unsafe {
                !split(self.hooks, address, all, first, all - first, true, self.arena)
            };
        }
        true
    }

    /// Whether the `first` granules at `start` and the `second` behind them become one unit.
    pub(super) fn merge(&self, start: usize, first: usize, second: usize) -> bool {
        // SAFETY: null, or hooks that outlive the arena.
        let Some(hooks) = (unsafe { self.hooks.as_ref() }) else {
            return true;
        };
        if hooks.split.is_none() {
            // Who is not told of what is cut does not ask what is joined.
            return true;
        }
        let Some(merge) = hooks.merge.filter(|_| !self.silent) else {
            return false;
        };
        let next = (start + first * GRANULE) as *mut c_void;
        let (start, first, second) = (start as *mut c_void, first * GRANULE, second * GRANULE);
        // SAFETY: as jemalloc's interface says; both ranges are the arena's.
        unsafe { !merge(self.hooks, start, first, next, second, true, self.arena) }
    }

    /// [`Borders::split`] of a unit of `len` granules whose head is `head`.
    ///
    /// # Safety
    /// `head` is a valid descriptor.
    pub(super) unsafe fn split_unit(&self, head: *mut Granule, first: u32, len: u32) -> bool {
        // SAFETY: `head` is a valid descriptor (fn contract), whose base the caller's lock keeps.
        self.split(unsafe { (*head).base }, first as usize, len as usize)
    }
}
