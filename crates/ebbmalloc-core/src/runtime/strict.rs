//! The requests of strict mode (`check:strict`): each block gets a tag and bytes next to it that are checked when it is
//! freed; freed blocks are cleared and wait (`super::checks`).
//!
//! Every thread is observed, so each request comes to the slow path and from there to here. The memory is that of
//! ordinary requests for some more bytes:
//!
//! - a small block: 16 or 32 bytes, or its alignment if that is more; the block; 16 bytes or more;
//! - a large block: the same before it, and a guard after, so that it ends at the end of a page;
//! - a block of no bytes: a page, and a guard, where the block is.
//!
//! Blocks of a signal handler, and of a thread that ends, do not wait.

use super::access::{observer, with_access};
use super::checks::locate::{Found, locate};
use super::checks::quarantine::{self, Ring};
use super::checks::report::{self, Freed};
use super::checks::tag::{CANARY, Maker, Place, SIZE_END, State, TAG, Tag};
use super::checks::{early, is_strict};
use super::instance::HEAP;
use super::lookup::quick_class;
use super::observed;
use super::observer::{Observer, is_alone};
use crate::os::{Os, PageRun};
use crate::size::{BLOCK_MAX, CLASS, GRANULE, QUANTUM, QUICK_MAX, SMALL_MAX, class_of};
use core::ptr::null_mut;

/// How a request is served.
#[derive(Clone, Copy)]
enum Plan {
    /// So many bytes before the block.
    Small(usize),
    /// So many bytes before the block, and after so many bytes a guard.
    Large(usize, usize),
    /// A guard at the block.
    Empty,
    /// No tag.
    Plain,
}

/// From so many bytes on a block has room for the longer canary before it.
const MEDIUM: usize = 512;

/// The plan for a request, and the bytes that it takes. `None` if there can be no such block.
#[inline]
fn plan(size: usize, align: usize) -> Option<(Plan, usize)> {
    let front = if size < MEDIUM { align.max(TAG) } else { align.max(2 * TAG) };
    if size != 0 && size < SMALL_MAX && front + size + TAG <= SMALL_MAX {
        return Some((Plan::Small(front), front + size + TAG));
    }
    let page = HEAP.os.page_bytes();
    if align > GRANULE || size >= SIZE_END {
        return (size <= BLOCK_MAX).then_some((Plan::Plain, size));
    }
    if size == 0 {
        return Some((Plan::Empty, 2 * page.max(align)));
    }
    let (front, end) = if align <= page {
        let bytes = size.next_multiple_of(align.max(QUANTUM));
        let end = (TAG + bytes).next_multiple_of(page);
        (end - bytes, end)
    } else {
        (align, align + size.next_multiple_of(page))
    };
    // A large block whatever its size: it begins at a granule.
    Some((Plan::Large(front, end), (end + page).max(SMALL_MAX + 1)))
}

/// A block with a tag; `raw` gets an alignment and a number of bytes. Null if there is no memory.
#[inline]
pub fn allocate(
    observer: Option<&Observer>,
    size: usize,
    align: usize,
    maker: Maker,
    raw: impl FnOnce(usize, usize) -> *mut u8,
) -> *mut u8 {
    let ring = observer.and_then(Observer::ring);
    if let Some(ring) = ring {
        check_newest(ring);
    }
    let Some((plan, bytes)) = plan(size, align) else {
        return null_mut();
    };
    let align = if let Plan::Empty = plan { align.max(HEAP.os.page_bytes()) } else { align };
    let memory = raw(align, bytes);
    if memory.is_null() {
        return memory;
    }
    let (front, guarded) = match plan {
        Plan::Plain => return memory,
        Plan::Small(front) => (front, false),
        Plan::Large(front, end) => (front, guard(memory, end)),
        Plan::Empty => (align, guard(memory, align)),
    };
    let behind = match plan {
        Plan::Small(_) => CLASS[class_of(bytes)].size as usize - front - size,
        Plan::Large(_, end) if guarded => end - front - size,
        _ if guarded => 0,
        _ => CANARY,
    };
    let place = Place::at(memory as usize + front);
    let tag = Tag { size, maker, front, guarded, behind: behind.min(CANARY) };
    // SAFETY: the memory is ours alone, and as long as the plan says.
    unsafe {
        place.write(&tag);
        if let Some(ring) = ring {
            // Not in an arena of the program's own, which may end with all its blocks.
            if quick_class(place.block).is_some() {
                ring.set_newest(place, &tag);
            } else {
                ring.forget_newest();
            }
        }
    }
    place.block as *mut u8
}

/// Puts a guard `at` so many bytes from the beginning of new memory. False if the kernel refuses, and where the program's
/// own functions supply the memory.
#[cold]
fn guard(memory: *mut u8, at: usize) -> bool {
    let page = HEAP.os.page_bytes();
    // SAFETY: a page of memory that is ours alone, in which the block is not.
    !HEAP.is_in_explicit_arena(memory as usize) && unsafe { HEAP.os.bar(memory as usize + at, page) }
}

/// [`super::entry::malloc`].
#[inline(never)]
pub fn malloc(observer: Option<&Observer>, size: usize, maker: Maker) -> *mut u8 {
    allocate(observer, size, 1, maker, |align, bytes| {
        if bytes <= QUICK_MAX
            && let Some(observer) = observer
            && let Some(slot) = observed::malloc_quick(observer, bytes)
        {
            return slot.as_ptr();
        }
        memory(observer, align, bytes)
    })
}

/// [`super::entry::memalign`].
pub fn memalign(observer: Option<&Observer>, align: usize, size: usize, maker: Maker) -> *mut u8 {
    allocate(observer, size, align, maker, |align, bytes| memory(observer, align, bytes))
}

/// [`super::entry::malloc_zeroed`].
pub fn malloc_zeroed(observer: Option<&Observer>, size: usize) -> *mut u8 {
    allocate(observer, size, 1, Maker::Malloc, |align, bytes| match observer {
        _ if size == 0 => memory(observer, align, bytes),
        Some(observer) => observed::malloc_zeroed(observer, bytes),
        None => with_access(|access| HEAP.allocate_zeroed(access, bytes)),
    })
}

#[inline(never)]
fn memory(observer: Option<&Observer>, align: usize, bytes: usize) -> *mut u8 {
    match observer {
        Some(observer) if align <= QUANTUM => observed::malloc(observer, bytes),
        Some(observer) => observed::memalign(observer, align, bytes),
        None => with_access(|access| HEAP.allocate_aligned(access, bytes, align)),
    }
}

/// The newest block of the thread, and the one freed last: no other thread can have freed the first, no thread may have
/// written to the second. So a program that has only written next to a block ends at its next request.
#[inline]
fn check_newest(ring: &Ring) {
    // SAFETY: without another thread, none has freed the newest block.
    let (newest, freed) = unsafe { ring.looks_wrong(is_alone()) };
    if newest || freed {
        look_again(ring);
    }
}

/// Ends the process, if it was not a signal handler that came in between, or another thread that began.
#[cold]
fn look_again(ring: &Ring) {
    if let Some(place) = ring.newest() {
        // SAFETY: the block is live if it is the newest still, and no other thread is there.
        let wrong = unsafe { place.read().map(|(tag, _)| (tag, place.find_overwritten(&tag))) };
        let is_same = ring.newest() == Some(place) && is_alone();
        match wrong {
            Some((tag, Some(side))) if is_same => report::overwritten(side, place, &tag),
            None if is_same => report::tag_overwritten(place),
            _ => ring.forget_newest(),
        }
    }
    if let Some(place) = ring.freed() {
        // SAFETY: the block is in the ring.
        let (found, is_written) = unsafe { (place.read(), place.is_written(QUANTUM)) };
        if let Some((tag, State::Freed)) = found
            && is_written
            && ring.freed() == Some(place)
        {
            report::block(b"written after free: ", place, &tag);
        }
    }
}

/// The tag of a live block. Ends the process, with the name of `function`, if there is none at the address. `None` for a
/// block without a tag.
#[inline(always)]
fn live(function: &[u8], address: usize) -> Option<(Place, Tag)> {
    match locate(address) {
        Found::Tagged(place, tag, State::Live) => Some((place, tag)),
        other => not_live(function, address, other),
    }
}

#[cold]
fn not_live(function: &[u8], address: usize, found: Found) -> Option<(Place, Tag)> {
    match found {
        Found::Plain => None,
        Found::Tagged(place, tag, State::Live) => Some((place, tag)),
        Found::Tagged(place, tag, State::Freed) => report::freed(function, place, &tag),
        Found::Inside(place, tag) => report::inside(function, address, place, &tag),
        Found::Broken => {
            report::no_block(function, address, b"no block any more, or the bytes before it were overwritten")
        }
        Found::Nothing => report::no_block(function, address, b"no block begins there"),
        Found::Foreign => report::no_block(function, address, b"not from this allocator"),
    }
}

/// [`super::entry::free`].
///
/// # Safety
/// As there.
#[inline(never)]
pub unsafe fn free(block: *mut u8, freed: Freed) {
    if block.is_null() {
        return;
    }
    let observer = observer();
    let Some((place, tag)) = live(freed.by.names().1, block as usize) else {
        early::take(block as usize);
        // SAFETY: the heap looks at the block itself.
        return unsafe { free_memory(observer, block) };
    };
    if freed.by != tag.maker || freed.size.is_some_and(|size| size != tag.size) {
        report::mismatch(freed, place, &tag);
    }
    // SAFETY: the tag was read just now.
    unsafe {
        if let Some(side) = place.find_overwritten(&tag) {
            report::overwritten(side, place, &tag);
        }
        place.begin_free(&tag);
    }
    if let Some(leaving) = clear_and_keep(observer.and_then(Observer::ring), place, &tag)
        && let Some(memory) = quarantine::release(leaving)
    {
        // SAFETY: the memory is from the heap, and no block is in it any more.
        unsafe { free_memory(observer, memory) };
    }
}

/// Clears a block that was freed just now and lets it wait; the block that leaves for it, if one does.
#[inline]
fn clear_and_keep(ring: Option<&Ring>, place: Place, tag: &Tag) -> Option<usize> {
    if let Some(ring) = ring {
        ring.forget(place);
    }
    let waits = if tag.guarded {
        bar(place, tag)
    } else {
        // SAFETY: the block is freed, and what is after it is its own memory.
        unsafe { place.clear(tag) };
        tag.size <= SMALL_MAX && !HEAP.is_in_explicit_arena(place.block)
    };
    match ring {
        Some(ring) if waits => Some(ring.keep(place, tag)).filter(|&block| block != 0),
        _ => Some(place.block),
    }
}

/// Makes the first page of a freed block fault that has a guard: to guard all pages would cost more than all else. A long
/// block gives its memory back to the kernel while it waits.
#[cold]
fn bar(place: Place, tag: &Tag) -> bool {
    const LONG: usize = 1 << 20;
    let page = HEAP.os.page_bytes();
    let start = place.block.next_multiple_of(page);
    let bytes = (place.block + tag.size).next_multiple_of(page).saturating_sub(start);
    if bytes == 0 {
        return true;
    }
    // SAFETY: the block is freed.
    unsafe {
        if bytes >= LONG {
            HEAP.os.discard(&[PageRun { start, bytes }]);
        }
        HEAP.os.bar(start, page)
    }
}

/// # Safety
/// `memory` came from the heap and is not used any more.
unsafe fn free_memory(observer: Option<&Observer>, memory: *mut u8) {
    // SAFETY: the fn contract.
    unsafe {
        match observer {
            Some(observer) => {
                let class = quick_class(memory as usize).unwrap_or(0);
                if !observed::free_quick(observer, memory, class) {
                    observed::free(observer, memory);
                }
            }
            None => with_access(|access| HEAP.free(access, memory)),
        }
    }
}

/// [`super::entry::realloc`].
///
/// # Safety
/// `block` is a live block of the caller's.
#[inline(never)]
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    let found = live(b"realloc", block as usize);
    let old = match &found {
        Some((place, tag)) => {
            if tag.maker != Maker::Malloc {
                report::block(b"realloc of ", *place, tag);
            }
            // SAFETY: the tag was read just now.
            if let Some(side) = unsafe { place.find_overwritten(tag) } {
                report::overwritten(side, *place, tag);
            }
            tag.size
        }
        // SAFETY: the block is live (fn contract).
        None => unsafe { HEAP.usable_size(block) },
    };
    if let Some((place, tag)) = found
        && fits_in_slot(&tag, size)
    {
        let bytes = CLASS[class_of(tag.front + size + TAG)].size as usize;
        let behind = (bytes - tag.front - size).min(CANARY);
        // SAFETY: the slot is as long, and its memory is the block's alone.
        unsafe {
            if size < old {
                block.add(size).write_bytes(0, old + tag.behind - size);
            }
            place.write(&Tag { size, behind, ..tag });
        }
        // What was noted of its end is not true any more.
        observer().and_then(Observer::ring).inspect(|ring| ring.forget_newest());
        return block;
    }
    let new = malloc(observer(), size, Maker::Malloc);
    if !new.is_null() {
        // SAFETY: both blocks are live, apart, and at least this long.
        unsafe { core::ptr::copy_nonoverlapping(block, new, old.min(size)) };
        // SAFETY: the block is the caller's, who does not use it any more (fn contract).
        unsafe { free(block, Freed { by: Maker::Malloc, size: None }) };
    }
    new
}

/// Whether a small block stays in its slot with another size.
fn fits_in_slot(tag: &Tag, size: usize) -> bool {
    let bytes = |size: usize| tag.front + size + TAG;
    !tag.guarded
        && size > 0
        && tag.front <= 2 * TAG
        && size.max(tag.size) < SMALL_MAX - 3 * TAG
        && class_of(bytes(size)) == class_of(bytes(tag.size))
}

/// Bytes of a live block.
///
/// # Safety
/// `block` is a live block.
pub unsafe fn usable_size(block: *const u8) -> usize {
    match live(b"malloc_usable_size", block as usize) {
        Some((_, tag)) => tag.size,
        // SAFETY: the block is live (fn contract).
        None => unsafe { HEAP.usable_size(block) },
    }
}

/// Whether strict mode is on: then a face's requests for special blocks go through [`allocate`].
#[inline(always)]
pub fn is_on() -> bool {
    is_strict()
}
