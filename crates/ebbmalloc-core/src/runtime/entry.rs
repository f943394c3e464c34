//! The calls that the faces make. Each tries the thread's cache first; what that cannot do is a cold
//! function of its own.

use super::access::{observer, with_access, with_own_cache};
use super::checks::report::Freed;
use super::checks::tag::Maker;
use super::checks::{early, is_strict};
use super::instance::HEAP;
use super::lookup::quick_class;
use super::state::current;
use super::{guards, observed, strict};
use crate::cache::cache::Cache;
use crate::cache::fast::{self, Instance};
use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::size::{CLASS, QUANTUM, QUICK_MAX, SMALL_MAX, class_of};

/// How a block was freed, beyond its address. Only strict mode looks at it.
pub trait Said: Copy {
    /// The same as a value.
    fn freed(self) -> Freed;
}

/// By the function for blocks that `maker` makes: the number of a [`Maker`].
#[derive(Clone, Copy, Debug)]
pub struct By<const MAKER: u8>;

/// The same, with a size.
#[derive(Clone, Copy, Debug)]
pub struct Sized<const MAKER: u8>(pub usize);

impl<const MAKER: u8> Said for By<MAKER> {
    fn freed(self) -> Freed {
        Freed { by: const { Maker::of(MAKER) }, size: None }
    }
}

impl<const MAKER: u8> Said for Sized<MAKER> {
    fn freed(self) -> Freed {
        Freed { by: const { Maker::of(MAKER) }, size: Some(self.0) }
    }
}

/// The allocator of this process, to callers that say `S` when they free.
struct Process<S>(PhantomData<S>);

impl<S: Said> Instance for Process<S> {
    type Said = S;

    #[inline(always)]
    fn cache() -> &'static Cache {
        current()
    }

    #[inline(always)]
    fn quick_class(address: usize) -> Option<usize> {
        quick_class(address)
    }

    #[inline(never)]
    unsafe fn free_slow(block: *mut u8, class: usize, said: S) {
        if is_strict() {
            // SAFETY: the block is null or from here, and not used any more (contract of `free`).
            return unsafe { strict::free(block, said.freed()) };
        }
        // SAFETY: the block is null or from here, and not used any more (contract of `free`).
        unsafe { free_slow(block, class) };
    }

    #[inline(never)]
    unsafe fn free_elsewhere(block: *mut u8, said: S) {
        // SAFETY: the block is null or from here, and not used any more (contract of `free`).
        unsafe { Self::free_slow(block, 0, said) };
    }
}

/// # Safety
/// As for [`free`].
unsafe fn free_slow(block: *mut u8, class: usize) {
    if class != 0
        && let Some(observer) = observer()
        && observed::free_quick(observer, block, class)
    {
        return;
    }
    // SAFETY: the block is null or from here, and not used any more (contract of `free`).
    unsafe { free_to_heap(block) };
}

/// A block of at least `size` bytes, aligned to 16; null if there is no memory.
#[inline(always)]
pub fn malloc(size: usize) -> *mut u8 {
    match malloc_from_cache(size) {
        Some(block) => block.as_ptr(),
        None => malloc_slow_apart(size),
    }
}

/// [`fast::malloc`]: where it has nothing, [`malloc_slow`] must be asked.
#[inline(always)]
pub fn malloc_from_cache(size: usize) -> Option<NonNull<u8>> {
    fast::malloc::<Process<By<0>>>(size)
}

/// The rest of malloc: sizes above the quick table, observed threads, and everything that the cache
/// cannot serve at once. Inlined into the face's cold function, so that sizes above the quick table need no stack frame.
#[inline(always)]
pub fn malloc_slow(size: usize) -> *mut u8 {
    malloc_slow_by(size, Maker::Malloc)
}

/// The same for another maker of blocks.
#[inline(always)]
pub fn malloc_slow_by(size: usize, maker: Maker) -> *mut u8 {
    if is_strict() {
        return strict::malloc(observer(), size, maker);
    }
    malloc_from_other_stack(size).map_or_else(|| malloc_from_heap(size, maker), NonNull::as_ptr)
}

/// A slot from a stack that [`malloc_from_cache`] does not look at: of a larger size class, or of an observed thread.
#[inline(always)]
fn malloc_from_other_stack(size: usize) -> Option<NonNull<u8>> {
    if size > QUICK_MAX {
        return malloc_from_large_stack(size);
    }
    observed::malloc_quick(observer()?, size)
}

/// A slot for a size above the quick table, from the thread's cache.
#[inline(always)]
fn malloc_from_large_stack(size: usize) -> Option<NonNull<u8>> {
    if size <= QUICK_MAX || size > SMALL_MAX {
        return None;
    }
    current().pop_unrationed(class_of(size))
}

/// [`malloc_slow`], for callers that are better off with a call.
#[inline(never)]
fn malloc_slow_apart(size: usize) -> *mut u8 {
    malloc_slow(size)
}

#[inline(never)]
fn malloc_from_heap(size: usize, maker: Maker) -> *mut u8 {
    let observer = observer();
    if is_strict() {
        return strict::malloc(observer, size, maker);
    }
    if let Some(observer) = observer {
        return observed::malloc(observer, size);
    }
    if let Some(block) = guards::allocate(size) {
        return block as *mut u8;
    }
    early::note(with_access(|access| HEAP.allocate(access, size)))
}

/// A block of at least `size` bytes that reads as zero, from the thread's cache: `None` says nothing about memory,
/// only that [`malloc_zeroed`] must be asked.
#[inline(always)]
pub fn malloc_zeroed_from_cache(size: usize) -> Option<NonNull<u8>> {
    let slot = if size <= QUICK_MAX { current().pop_quick(size) } else { malloc_from_large_stack(size) }?;
    // SAFETY: the slot is ours and at least `size` bytes long.
    unsafe { slot.write_bytes(0, size) };
    Some(slot)
}

/// A block of at least `size` bytes that reads as zero; null if there is no memory.
pub fn malloc_zeroed(size: usize) -> *mut u8 {
    if let Some(slot) = malloc_zeroed_from_cache(size) {
        return slot.as_ptr();
    }
    let observer = observer();
    if is_strict() {
        return strict::malloc_zeroed(observer, size);
    }
    if let Some(observer) = observer {
        return observed::malloc_zeroed(observer, size);
    }
    early::note(with_access(|access| HEAP.allocate_zeroed(access, size)))
}

/// A block of at least `size` bytes aligned to `align`, a power of two, from the thread's cache: `None` says nothing
/// about memory, only that [`memalign`] must be asked.
#[inline(always)]
pub fn memalign_from_cache(align: usize, size: usize) -> Option<NonNull<u8>> {
    if align <= QUANTUM {
        return malloc_from_cache(size);
    }
    current().pop_unrationed(HEAP.class_in_caches(size, align)?)
}

/// A block of at least `size` bytes aligned to `align`, a power of two; null if there is no memory.
pub fn memalign(align: usize, size: usize) -> *mut u8 {
    memalign_by(align, size, Maker::Malloc)
}

/// The same for another maker of blocks.
pub fn memalign_by(align: usize, size: usize, maker: Maker) -> *mut u8 {
    if let Some(slot) = memalign_from_cache(align, size) {
        return slot.as_ptr();
    }
    if align <= QUANTUM {
        return malloc_slow_by(size, maker);
    }
    let observer = observer();
    if is_strict() {
        return strict::memalign(observer, align, size, maker);
    }
    if let Some(observer) = observer {
        return observed::memalign(observer, align, size);
    }
    early::note(with_access(|access| HEAP.allocate_aligned(access, size, align)))
}

/// Takes a block back; null is nothing. Ends the process if `block` is no live block.
///
/// # Safety
/// `block` is null or came from here, and is not used any more.
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    // SAFETY: the block is null or from this process's heap, and not used any more (fn contract).
    unsafe { free_as(block, By::<0>) }
}

/// The same by another function than `free`, or with a size.
///
/// # Safety
/// As for [`free`].
#[inline(always)]
pub unsafe fn free_as<S: Said>(block: *mut u8, said: S) {
    // SAFETY: the block is null or from this process's heap, and not used any more (fn contract).
    unsafe { fast::free::<Process<S>>(block, said) }
}

unsafe fn free_to_heap(block: *mut u8) {
    if block.is_null() {
        return;
    }
    if HEAP.parts.guarded.owns(block as usize) {
        return guards::free(block as usize);
    }
    // A thread that is on an explicit arena keeps slots of that as well.
    if let Some(class) = HEAP.class_at_home(current(), block as usize)
        && current().push(class, block)
    {
        return;
    }
    if let Some(observer) = observer() {
        // SAFETY: the block is null or from here, and not used any more (contract of `free`); null came back above.
        return unsafe { observed::free(observer, block) };
    }
    // SAFETY: the block is null or from here, and not used any more (contract of `free`); null came back above.
    with_access(|access| unsafe { HEAP.free(access, block) });
}

/// Makes a block larger or smaller; null if there is no memory, and the block is unchanged then.
///
/// # Safety
/// `block` came from here and is live; afterwards only the result is, unless that is null.
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    if is_strict() {
        // SAFETY: the block is live and the caller's (fn contract).
        return unsafe { strict::realloc(block, size) };
    }
    let class = quick_class(block as usize).unwrap_or(0);
    if class != 0 && size <= SMALL_MAX {
        let old = CLASS[class].size as usize;
        if stays(old, size) {
            return block;
        }
        let new = malloc(size);
        if !new.is_null() {
            // SAFETY: both blocks are live, apart, and at least this long.
            unsafe {
                core::ptr::copy_nonoverlapping(block, new, old.min(size));
                free(block);
            }
        }
        return new;
    }
    if let Some(observer) = observer() {
        // SAFETY: the block is live and the caller's (fn contract), and the quick look-up does not know it.
        return unsafe { observed::realloc(observer, block, size) };
    }
    // SAFETY: the block is live and the caller's (fn contract).
    with_access(|access| unsafe { HEAP.reallocate(access, block, size) })
}

/// The part of [`realloc`] that is worth inlining into a face: whether `block` is a slot that stays what it is.
/// False says only that another way must be taken; so it is for null and for size 0.
#[inline(always)]
pub fn stays_in_slot(block: *const u8, size: usize) -> bool {
    // Null lies in no region. No slot is of class 0, and its size is 0.
    let class = quick_class(block as usize).unwrap_or(0);
    size != 0 && stays(CLASS[class].size as usize, size) && !is_strict()
}

/// Whether a slot of `old` bytes is what a block of `size` bytes stays in: it fits, and a smaller one would not
/// save half.
#[inline(always)]
pub(super) fn stays(old: usize, size: usize) -> bool {
    size <= old && (size > old / 2 || old == CLASS[1].size as usize)
}

/// Bytes that may be used at `block`; 0 for null. Ends the process if `block` is no live block.
///
/// # Safety
/// `block` is null or a live block from here.
pub unsafe fn usable_size(block: *const u8) -> usize {
    if block.is_null() {
        return 0;
    }
    if is_strict() {
        // SAFETY: the block is live (fn contract) and not null.
        return unsafe { strict::usable_size(block) };
    }
    match quick_class(block as usize) {
        Some(class) if class != 0 => CLASS[class].size as usize,
        // SAFETY: the block is live (fn contract) and not null.
        _ => unsafe { HEAP.usable_size(block) },
    }
}

/// Returns all that is free to the kernel, other threads' caches included. True if anything went.
pub fn trim() -> bool {
    with_own_cache(|own| HEAP.trim(own))
}
