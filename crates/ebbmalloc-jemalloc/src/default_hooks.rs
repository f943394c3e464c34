//! The hooks of arenas that have none, for programs that put their own before them: memory straight from
//! the kernel. An arena without hooks does not call these; it has ways of its own.

use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;
use ebbmalloc_core::os::hooks::ExtentHooks;
use ebbmalloc_core::os::{Os, PageRun};
use ebbmalloc_core::runtime::face::HEAP;
use ebbmalloc_core::size::GRANULE;

/// The table, which C may write to as little as it may to jemalloc's.
#[derive(Debug)]
pub struct Table(pub ExtentHooks);

/// The default hooks.
pub static DEFAULT_HOOKS: Table = Table(ExtentHooks {
    alloc: Some(alloc),
    dalloc: Some(dalloc),
    destroy: Some(destroy),
    commit: Some(commit),
    decommit: Some(refuse),
    purge_lazy: Some(purge),
    purge_forced: Some(purge),
    split: Some(split),
    merge: Some(merge),
});

unsafe extern "C" fn alloc(
    _: *mut ExtentHooks,
    wanted: *mut c_void,
    bytes: usize,
    align: usize,
    zero: *mut bool,
    commit: *mut bool,
    _: c_uint,
) -> *mut c_void {
    let Some(bytes) = bytes.checked_next_multiple_of(GRANULE) else {
        return null_mut();
    };
    if bytes == 0 || !wanted.is_null() || !align.is_power_of_two() {
        return null_mut();
    }
    let Ok(start) = HEAP.os.reserve(bytes, align.max(GRANULE)) else {
        return null_mut();
    };
    HEAP.os.settle_huge_pages(start.as_ptr() as usize, bytes);
    // SAFETY: reserved just now; the flags are the caller's.
    unsafe {
        if HEAP.os.commit(start.as_ptr() as usize, bytes).is_err() {
            HEAP.os.release(start.as_ptr() as usize, bytes);
            return null_mut();
        }
        if !zero.is_null() {
            *zero = true;
        }
        if !commit.is_null() {
            *commit = true;
        }
    }
    start.as_ptr().cast()
}

unsafe extern "C" fn dalloc(_: *mut ExtentHooks, start: *mut c_void, bytes: usize, _: bool, _: c_uint) -> bool {
    // SAFETY: the range is of `alloc`'s, as its caller knows, and it is not in use any more.
    unsafe { HEAP.os.release(start as usize, bytes.next_multiple_of(GRANULE)) };
    false
}

unsafe extern "C" fn destroy(_: *mut ExtentHooks, start: *mut c_void, bytes: usize, _: bool, _: c_uint) {
    // SAFETY: the range is one that `alloc` gave, whole, and not in use any more.
    unsafe { HEAP.os.release(start as usize, bytes.next_multiple_of(GRANULE)) };
}

/// Nothing is ever decommitted.
unsafe extern "C" fn commit(_: *mut ExtentHooks, _: *mut c_void, _: usize, _: usize, _: usize, _: c_uint) -> bool {
    false
}

unsafe extern "C" fn refuse(_: *mut ExtentHooks, _: *mut c_void, _: usize, _: usize, _: usize, _: c_uint) -> bool {
    true
}

unsafe extern "C" fn purge(
    _: *mut ExtentHooks,
    start: *mut c_void,
    _: usize,
    offset: usize,
    bytes: usize,
    _: c_uint,
) -> bool {
    let page = HEAP.os.page_bytes();
    let start = (start as usize).wrapping_add(offset);
    if !start.is_multiple_of(page) || !bytes.is_multiple_of(page) {
        return true;
    }
    // SAFETY: pages of `alloc`'s whose contents are not needed, as the caller knows.
    let discarded = unsafe { HEAP.os.discard(&[PageRun { start, bytes }]) };
    discarded.refused_bytes > 0
}

/// A mapping can be divided anywhere.
unsafe extern "C" fn split(
    _: *mut ExtentHooks,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}

unsafe extern "C" fn merge(
    _: *mut ExtentHooks,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}
