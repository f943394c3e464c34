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

mod request_hooks {
    use super::*;
    use std::alloc::{GlobalAlloc, Layout};
    use std::cell::Cell;
    use std::ffi::{c_char, c_int, c_void};
    use std::ptr::null_mut;

    unsafe extern "C" {
        fn mallctl(
            name: *const c_char,
            old: *mut c_void,
            old_len: *mut usize,
            new: *const c_void,
            new_len: usize,
        ) -> c_int;
    }

    thread_local! {
        /// What was told last, how much in all: other tests have threads of their own.
        static LAST: Cell<(char, c_int, usize, usize)> = const { Cell::new((' ', 0, 0, 0)) };
        static TOLD: Cell<usize> = const { Cell::new(0) };
    }

    fn note(what: char, call: c_int, first: usize, second: usize) {
        LAST.set((what, call, first, second));
        TOLD.set(TOLD.get() + 1);
    }

    /// The only thing that was told since the last time.
    fn only() -> (char, c_int, usize, usize) {
        assert_eq!(TOLD.replace(0), 1);
        LAST.get()
    }

    unsafe extern "C" fn on_allocation(
        _: *mut c_void,
        call: c_int,
        _: *mut c_void,
        _: usize,
        args: *mut usize,
    ) {
        // SAFETY: three arguments.
        unsafe { note('a', call, *args, *args.add(1)) };
    }

    unsafe extern "C" fn on_deallocation(
        _: *mut c_void,
        call: c_int,
        _: *mut c_void,
        args: *mut usize,
    ) {
        // SAFETY: three arguments.
        unsafe { note('d', call, *args, *args.add(1)) };
    }

    unsafe extern "C" fn on_expansion(
        _: *mut c_void,
        call: c_int,
        _: *mut c_void,
        _: usize,
        _: usize,
        _: usize,
        args: *mut usize,
    ) {
        // SAFETY: four arguments.
        unsafe { note('e', call, *args, *args.add(1)) };
    }

    #[test]
    fn rusts_requests_are_told_as_what_they_stand_for() {
        let _alone = alone();
        let hooks = [
            on_allocation as *const c_void,
            on_deallocation as *const c_void,
            on_expansion as *const c_void,
            null_mut(),
        ];
        let (mut handle, mut length) = (null_mut::<c_void>(), size_of::<*mut c_void>());
        // SAFETY: the buffers are as long as is said, and the functions stay.
        let installed = unsafe {
            mallctl(
                c"experimental.hooks.install".as_ptr(),
                (&raw mut handle).cast(),
                &raw mut length,
                hooks.as_ptr().cast(),
                size_of_val(&hooks),
            )
        };
        assert_eq!(installed, 0);
        TOLD.set(0);
        let plain = Layout::from_size_align(100, 8).unwrap();
        let aligned = Layout::from_size_align(100, 256).unwrap();
        // SAFETY: each block is freed once, by its layout.
        unsafe {
            let block = GLOBAL.alloc(plain);
            assert_eq!(only(), ('a', 0, 100, 0));
            let same = GLOBAL.realloc(block, plain, 101);
            assert_eq!((same, only()), (block, ('e', 0, block as usize, 101)));
            let moved = GLOBAL.realloc(block, plain, 5000);
            assert_eq!(
                (TOLD.replace(0), LAST.get()),
                (2, ('d', 3, block as usize, 5000))
            );
            GLOBAL.dealloc(moved, Layout::from_size_align(5000, 8).unwrap());
            assert_eq!(only(), ('d', 2, moved as usize, 5000));
            let zeroed = GLOBAL.alloc_zeroed(plain);
            assert_eq!(only(), ('a', 3, 1, 100));
            GLOBAL.dealloc(zeroed, plain);
            assert_eq!(only(), ('d', 2, zeroed as usize, 100));
            let apart = GLOBAL.alloc(aligned);
            assert_eq!(only(), ('a', 2, 256, 100));
            let longer = GLOBAL.realloc(apart, aligned, 3000);
            assert_eq!(
                (TOLD.replace(0), LAST.get()),
                (2, ('d', 4, apart as usize, 3000))
            );
            assert!((longer as usize).is_multiple_of(256));
            GLOBAL.dealloc(longer, Layout::from_size_align(3000, 256).unwrap());
            assert_eq!(only(), ('d', 0, longer as usize, 0));
            let removed = mallctl(
                c"experimental.hooks.remove".as_ptr(),
                null_mut(),
                null_mut(),
                (&raw const handle).cast(),
                size_of_val(&handle),
            );
            assert_eq!(removed, 0);
            GLOBAL.dealloc(GLOBAL.alloc(plain), plain);
            assert_eq!(TOLD.get(), 0);
        }
    }
}
