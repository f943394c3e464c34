//! With `override-c`, the C names of a Rust program are ebbmalloc's too: one heap for both.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ebbmalloc::Ebbmalloc;

#[global_allocator]
static GLOBAL: Ebbmalloc = Ebbmalloc;

/// Figures of the whole process mean something to one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// More than what the threads of the test runner free or take meanwhile.
const LEEWAY_BYTES: u64 = 1 << 20;

fn live_bytes() -> u64 {
    GLOBAL.stats().map_or(0, |stats| stats.live_bytes)
}

#[test]
fn what_c_allocates_is_counted_here_and_can_be_freed_here() {
    let _alone = alone();
    const BYTES: usize = 64 << 20;
    let before = live_bytes();
    // SAFETY: plain calls of the C library's names.
    let block = unsafe { libc::malloc(BYTES) };
    let layout = std::alloc::Layout::from_size_align(BYTES, 16).unwrap();
    assert!(live_bytes() + LEEWAY_BYTES >= before + BYTES as u64);
    // SAFETY: the block is live, and came from the same heap.
    unsafe { std::alloc::dealloc(block.cast(), layout) };
    assert!(live_bytes() <= before + LEEWAY_BYTES);
}

#[test]
fn what_libc_allocates_inside_is_counted_here() {
    let _alone = alone();
    let text = std::ffi::CString::new(vec![b'x'; 8 << 20]).unwrap();
    let before = live_bytes();
    // SAFETY: `text` is a C string; the copy is freed as C says.
    unsafe {
        let copy = libc::strdup(text.as_ptr());
        assert!(live_bytes() + LEEWAY_BYTES >= before + (8 << 20));
        libc::free(copy.cast());
    }
}

#[test]
fn errno_tells_a_failure() {
    // SAFETY: plain calls of the C library's names.
    unsafe {
        *libc::__errno_location() = 0;
        assert!(libc::calloc(1 << 40, 1 << 40).is_null());
        assert_eq!(*libc::__errno_location(), libc::ENOMEM);
    }
}
