//! Functions of the program's that take part in the heap profile, jemalloc's `experimental.hooks.prof_*`: one that
//! walks stacks in place of `backtrace`, and one that is called after each dump.

use super::backtrace;
use crate::base::exact::u32_of;
use crate::base::lock::Wait;
use core::ffi::{CStr, c_char, c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Writes return addresses, the innermost first, how many, and at most so many.
pub type WalkStack = unsafe extern "C" fn(*mut *mut c_void, *mut c_uint, c_uint);
/// Called with the name of the file that a dump was written to.
pub type AfterDump = unsafe extern "C" fn(*const c_char);

/// Null for the walk of our own. Stored with release, loaded with acquire: what the program has made ready for its
/// function is there.
static WALK: AtomicPtr<()> = AtomicPtr::new(null_mut());
/// The hook after dumps; null for none.
static AFTER_DUMP: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// The function that walks stacks, a [`WalkStack`]: the program's, or else our own.
pub fn stack_walker() -> *mut () {
    match WALK.load(Ordering::Acquire) {
        walk if walk.is_null() => walk_by_tables as WalkStack as *mut (),
        walk => walk,
    }
}

/// Sets the function that walks stacks.
///
/// # Safety
/// `walk` is a [`WalkStack`] that can be called on any thread from now on.
pub unsafe fn set_stack_walker(walk: *mut ()) {
    WALK.store(walk, Ordering::Release);
}

/// The hook after dumps: an [`AfterDump`], or null.
pub fn dump_listener() -> *mut () {
    AFTER_DUMP.load(Ordering::Acquire)
}

/// Sets the hook after dumps.
///
/// # Safety
/// `listener` is null, or an [`AfterDump`] that can be called on any thread from now on.
pub unsafe fn set_dump_listener(listener: *mut ()) {
    AFTER_DUMP.store(listener, Ordering::Release);
}

/// Return addresses of the calling thread's stack, as many as `frames` takes, and where our own walk finds them the stack
/// pointers; returns how many.
pub(super) fn walk(frames: &mut [usize], stacks: &mut [usize]) -> usize {
    let walk = WALK.load(Ordering::Acquire);
    if walk.is_null() {
        return backtrace::walk(frames, stacks, Wait::Yes);
    }
    let mut depth = 0;
    // SAFETY: the promise of who set it.
    unsafe {
        let walk = core::mem::transmute::<*mut (), WalkStack>(walk);
        let most = c_uint::try_from(frames.len()).unwrap_or(c_uint::MAX);
        walk(frames.as_mut_ptr().cast(), &raw mut depth, most);
    }
    frames.len().min(depth as usize)
}

pub(super) fn dumped(file: &CStr) {
    let listener = dump_listener();
    if !listener.is_null() {
        // SAFETY: the promise of who set it.
        unsafe { core::mem::transmute::<*mut (), AfterDump>(listener)(file.as_ptr()) };
    }
}

/// The walk of our own, for programs that put theirs before it.
unsafe extern "C" fn walk_by_tables(frames: *mut *mut c_void, depth: *mut c_uint, most: c_uint) {
    // SAFETY: the caller's arrays, as the type says.
    unsafe {
        let frames = core::slice::from_raw_parts_mut(frames.cast::<usize>(), most as usize);
        *depth = u32_of(backtrace::walk(frames, &mut [], Wait::Yes));
    }
}
