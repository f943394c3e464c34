//! Request hooks: functions of the program's that are told of each request of every thread, with the words and
//! numbers of jemalloc's `experimental.hooks`.
//!
//! While there are any, all caches are shut ([`Registry::set_shut`](crate::cache::registry::Registry::set_shut)): each
//! request comes to a slow path, and there alone the faces and `entry` ask [`are_installed`] and tell. So who
//! installs none pays nothing in malloc and free. A request that begins after it was known that a hook is
//! installed is told of; one that runs meanwhile may be or not, and the same holds of a removal.
//!
//! A hook may call malloc and free, of which no hook is told: a word of the thread's says that it is in one.

use super::instance::HEAP;
use super::thread::set_apart;
use super::tls::{third_word_load, third_word_store};
use crate::base::versioned::Versioned;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};

/// As many can be installed.
const MOST: usize = 4;

static RECORDS: [Versioned<4>; MOST] = [const { Versioned::new() }; MOST];

/// Hooks that are installed. Counted up once a record is full, and down once it is empty; relaxed: who must see
/// the hook sees the count.
static INSTALLED: AtomicU32 = AtomicU32::new(0);

/// By what a block was asked for. What C's later standards and glibc added goes by the name that is nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Allocation {
    Malloc = 0,
    PosixMemalign = 1,
    AlignedAlloc = 2,
    Calloc = 3,
    Memalign = 4,
    Valloc = 5,
    Mallocx = 6,
    Realloc = 7,
    Rallocx = 8,
}

/// By what a block is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Deallocation {
    Free = 0,
    Dallocx = 1,
    Sdallocx = 2,
    Realloc = 3,
    Rallocx = 4,
}

/// By what a block changed its size where it is, or was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Expansion {
    Realloc = 0,
    Rallocx = 1,
    Xallocx = 2,
}

/// Called after an allocation: `extra`, an [`Allocation`], the block, what the function returns, its arguments.
pub type OnAllocation = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, usize, *mut usize);
/// Called before a block is freed: `extra`, a [`Deallocation`], the block, the arguments.
pub type OnDeallocation = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut usize);
/// Called after a block stayed where it is: `extra`, an [`Expansion`], the block, its usable size before and now,
/// what the function returns, its arguments.
pub type OnExpansion =
    unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, usize, usize, usize, *mut usize);

/// What is installed: jemalloc's `hooks_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RequestHooks {
    /// Or none.
    pub on_allocation: Option<OnAllocation>,
    /// Or none.
    pub on_deallocation: Option<OnDeallocation>,
    /// Or none.
    pub on_expansion: Option<OnExpansion>,
    /// The first argument of each.
    pub extra: *mut c_void,
}

impl RequestHooks {
    fn to_words(self) -> [*mut (); 4] {
        // SAFETY: four pointers, each a function or null, in C's order.
        unsafe { core::mem::transmute(self) }
    }

    /// # Safety
    /// The words came from [`RequestHooks::to_words`].
    unsafe fn of_words(words: [*mut (); 4]) -> Self {
        // SAFETY: the caller's promise.
        unsafe { core::mem::transmute(words) }
    }
}

/// Installs hooks; what [`remove`] takes them back by, or `None` if as many are installed as can be, or in a signal
/// handler that interrupted a request.
///
/// # Safety
/// The functions can be called on any thread until the last one that was in them has left, which a removal does
/// not wait for.
pub unsafe fn install(hooks: RequestHooks) -> Option<*mut c_void> {
    set_apart(|| {
        let record = RECORDS
            .iter()
            .find(|record| record.fill(hooks.to_words()))?;
        INSTALLED.fetch_add(1, Ordering::Relaxed);
        HEAP.shut_caches(are_installed);
        Some((&raw const *record).cast_mut().cast())
    })
    .flatten()
}

/// Removes what [`install`] gave `handle` for; false if there is no such thing any more, and as there.
pub fn remove(handle: *mut c_void) -> bool {
    let record = RECORDS
        .iter()
        .find(|&record| core::ptr::eq(record, handle.cast()));
    let removed = set_apart(|| {
        let removed = record.is_some_and(Versioned::empty);
        if removed {
            INSTALLED.fetch_sub(1, Ordering::Relaxed);
            HEAP.shut_caches(are_installed);
        }
        removed
    });
    removed.unwrap_or(false)
}

/// Whether there is anybody to tell. Slow paths ask.
#[inline(always)]
pub fn are_installed() -> bool {
    INSTALLED.load(Ordering::Relaxed) != 0
}

/// After an allocation that returned `result`: null where it failed.
#[inline(always)]
pub fn allocated(call: Allocation, block: *mut u8, result: usize, [a, b, c]: [usize; 3]) {
    if are_installed() {
        tell_of_allocation(call, block, result, a, b, c);
    }
}

/// Before `block` is freed; null is nothing.
#[inline(always)]
pub fn freeing(call: Deallocation, block: *mut u8, [a, b, c]: [usize; 3]) {
    if are_installed() && !block.is_null() {
        tell_of_deallocation(call, block, a, b, c);
    }
}

/// After `block` stayed where it is, whether or not it has another usable size now.
#[inline(always)]
pub fn expanded(
    call: Expansion,
    block: *mut u8,
    sizes: [usize; 2],
    result: usize,
    args: [usize; 4],
) {
    if are_installed() {
        tell_of_expansion(call, block, sizes, result, args);
    }
}

/// Its arguments go by registers: who tells nobody stores nothing.
#[cold]
#[inline(never)]
fn tell_of_allocation(
    call: Allocation,
    block: *mut u8,
    result: usize,
    a: usize,
    b: usize,
    c: usize,
) {
    let mut args = [a, b, c];
    tell(|hooks| {
        if let Some(hook) = hooks.on_allocation {
            // SAFETY: the promise of who installed it.
            unsafe {
                hook(
                    hooks.extra,
                    call as c_int,
                    block.cast(),
                    result,
                    args.as_mut_ptr(),
                )
            }
        }
    });
}

#[cold]
#[inline(never)]
fn tell_of_deallocation(call: Deallocation, block: *mut u8, a: usize, b: usize, c: usize) {
    let mut args = [a, b, c];
    tell(|hooks| {
        if let Some(hook) = hooks.on_deallocation {
            // SAFETY: the promise of who installed it.
            unsafe { hook(hooks.extra, call as c_int, block.cast(), args.as_mut_ptr()) }
        }
    });
}

#[cold]
#[inline(never)]
fn tell_of_expansion(
    call: Expansion,
    block: *mut u8,
    [before, now]: [usize; 2],
    result: usize,
    mut args: [usize; 4],
) {
    tell(|hooks| {
        if let Some(hook) = hooks.on_expansion {
            // SAFETY: the promise of who installed it.
            unsafe {
                hook(
                    hooks.extra,
                    call as c_int,
                    block.cast(),
                    before,
                    now,
                    result,
                    args.as_mut_ptr(),
                )
            }
        }
    });
}

/// Calls `each` with everything that is installed, unless the thread is in a hook.
fn tell(mut each: impl FnMut(RequestHooks)) {
    // SAFETY: requests come from threads that libc made.
    unsafe {
        if !third_word_load().is_null() {
            return;
        }
        // Anything but null.
        third_word_store((&raw const RECORDS).cast_mut().cast());
    }
    for words in RECORDS.iter().filter_map(Versioned::read) {
        // SAFETY: filled by `install` alone.
        each(unsafe { RequestHooks::of_words(words) });
    }
    // SAFETY: as above.
    unsafe { third_word_store(null_mut()) };
}
