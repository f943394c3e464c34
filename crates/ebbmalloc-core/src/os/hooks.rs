//! A program's own way to get and return an arena's address space: the functions that jemalloc calls
//! extent hooks, in its layout. `arena/own_space.rs` calls most of them; [`Borders`] the two of the borders of units.

use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;

/// Address of new address space: `(hooks, wanted address or null, bytes, alignment, zero, commit,
/// arena)`. `*zero` and `*commit` say what is demanded, and afterwards what is so. Null if there is
/// none.
pub type Alloc =
    unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, usize, *mut bool, *mut bool, c_uint) -> *mut c_void;
/// `(hooks, address, bytes, committed, arena)`; true if the range stays.
pub type Dalloc = unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, bool, c_uint) -> bool;
/// `(hooks, address, bytes, committed, arena)`.
pub type Destroy = unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, bool, c_uint);
/// `(hooks, address, bytes, offset, length, arena)`: of commit, decommit and both kinds of purge; true if
/// it did not go.
pub type OnPages = unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, usize, usize, c_uint) -> bool;
/// `(hooks, address, bytes, first part, second part, committed, arena)`; true if it did not go.
pub type Split = unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, usize, usize, bool, c_uint) -> bool;
/// `(hooks, address, bytes, address, bytes, committed, arena)`; true if it did not go.
pub type Merge = unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, *mut c_void, usize, bool, c_uint) -> bool;

/// `extent_hooks_t` of jemalloc 5. The program's memory, unchanged for as long as the arena lives; its
/// functions may be called from any of its threads.
#[repr(C)]
#[derive(Debug)]
pub struct ExtentHooks {
    /// New address space.
    pub alloc: Option<Alloc>,
    /// Returns a whole range that `alloc` gave.
    pub dalloc: Option<Dalloc>,
    /// The arena ends, and `dalloc` did not take the range.
    pub destroy: Option<Destroy>,
    /// Makes pages usable again after `decommit`.
    pub commit: Option<OnPages>,
    /// Gives pages back; they are not usable until `commit`, and read as zero then.
    pub decommit: Option<OnPages>,
    /// Gives pages back at some time; what they hold until then is not said.
    pub purge_lazy: Option<OnPages>,
    /// Gives pages back at once; they read as zero.
    pub purge_forced: Option<OnPages>,
    /// A unit becomes two: see [`Borders`].
    pub split: Option<Split>,
    /// Two units become one.
    pub merge: Option<Merge>,
}

/// The program's hooks `split` and `merge`, which are called when address space is cut and joined. Used by the
/// bookkeeping of extents, under the arena's lock. The heap's own arena, and explicit ones without hooks, call none.
///
/// Units lie side by side without a gap: slabs, large blocks, free extents, and the rest of a range that `alloc` gave.
/// Each is cut from one and joined with one that the hooks know.
pub struct Borders {
    hooks: *mut ExtentHooks,
    arena: c_uint,
    /// Nothing is joined: the purger's thread is at work, which is not the program's and calls no hook. It cuts
    /// nothing.
    pub(crate) silent: bool,
}

impl Borders {
    /// No hooks.
    pub const NONE: Self = Self { hooks: null_mut(), arena: 0, silent: false };

    /// The program whose table of hooks this is, or null; its index for the arena.
    pub const fn new(hooks: *mut ExtentHooks, arena: u32) -> Self {
        Self { hooks, arena, silent: false }
    }

    /// Whether two free units side by side are always joined.
    #[cfg(test)]
    pub(crate) fn joins_all(&self) -> bool {
        self.hooks.is_null()
    }

    /// Of `len` bytes at `start` the first `first` become one unit, the rest another. False if the hook
    /// refuses. An in-place resize then fails; when a request is served or pages are returned, the result is ignored.
    pub(crate) fn split(&self, start: usize, first: usize, len: usize) -> bool {
        if first == 0 || first == len {
            return true;
        }
        // SAFETY: null, or hooks that outlive the arena.
        if let Some(hooks) = unsafe { self.hooks.as_ref() }
            && let Some(split) = hooks.split
        {
            let address = start as *mut c_void;
            // SAFETY: as jemalloc's interface says; the range is the arena's.
            return unsafe { !split(self.hooks, address, len, first, len - first, true, self.arena) };
        }
        true
    }

    /// Whether the `first` bytes at `start` and the `second` after them become one unit.
    pub(crate) fn merge(&self, start: usize, first: usize, second: usize) -> bool {
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
        let next = (start + first) as *mut c_void;
        let start = start as *mut c_void;
        // SAFETY: as jemalloc's interface says; both ranges are the arena's.
        unsafe { !merge(self.hooks, start, first, next, second, true, self.arena) }
    }
}
