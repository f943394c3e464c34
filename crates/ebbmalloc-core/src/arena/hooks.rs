//! A program's own way to get and give back an arena's address space: the functions that jemalloc calls
//! extent hooks, in its layout. Called through [`super::own_space`] alone.

use core::ffi::{c_uint, c_void};

/// Address of new address space: `(hooks, wanted address or null, bytes, alignment, zero, commit,
/// arena)`. `*zero` and `*commit` say what is demanded, and afterwards what is so. Null if there is
/// none.
pub type Alloc = unsafe extern "C" fn(
    *mut ExtentHooks,
    *mut c_void,
    usize,
    usize,
    *mut bool,
    *mut bool,
    c_uint,
) -> *mut c_void;
/// `(hooks, address, bytes, committed, arena)`; true if the range stays.
pub type Dalloc = unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, bool, c_uint) -> bool;
/// `(hooks, address, bytes, committed, arena)`.
pub type Destroy = unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, bool, c_uint);
/// `(hooks, address, bytes, offset, length, arena)`: of commit, decommit and both kinds of purge; true if
/// it did not go.
pub type OnPages =
    unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, usize, usize, c_uint) -> bool;
/// `(hooks, address, bytes, first part, second part, committed, arena)`; true if it did not go.
pub type Split =
    unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, usize, usize, bool, c_uint) -> bool;
/// `(hooks, address, bytes, address, bytes, committed, arena)`; true if it did not go.
pub type Merge = unsafe extern "C" fn(
    *mut ExtentHooks,
    *mut c_void,
    usize,
    *mut c_void,
    usize,
    bool,
    c_uint,
) -> bool;

/// `extent_hooks_t` of jemalloc 5. The program's memory, unchanged for as long as the arena lives; its
/// functions may be called from any of its threads.
#[repr(C)]
#[derive(Debug)]
pub struct ExtentHooks {
    /// New address space.
    pub alloc: Option<Alloc>,
    /// A range of `alloc`'s goes back, whole.
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
    /// A unit becomes two: see [`super::borders`].
    pub split: Option<Split>,
    /// Two units become one.
    pub merge: Option<Merge>,
}
