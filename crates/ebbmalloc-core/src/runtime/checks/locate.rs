//! From an address that the program passes to the block's tag, whatever the address is.

use super::super::instance::HEAP;
use super::super::lookup::quick_class;
use super::early;
use super::tag::{Place, State, TAG, Tag};
use crate::heap::utilization::Memory;
use crate::os::Os;
use crate::size::{GRANULE, QUANTUM};

/// What is at an address.
pub enum Found {
    /// A block with a tag.
    Tagged(Place, Tag, State),
    /// A block without a tag: older than the settings, or aligned to more than a granule.
    Plain,
    /// In a block, or in the memory before it.
    Inside(Place, Tag),
    /// Where a block may have been; its tag is gone.
    Broken,
    /// No block, in the heap's memory.
    Nothing,
    /// Memory that is not the heap's.
    Foreign,
}

/// Looks for the block at `address`.
#[inline]
pub fn locate(address: usize) -> Found {
    let is_near = address % GRANULE >= TAG && address.is_multiple_of(QUANTUM);
    if is_near && quick_class(address).is_some_and(|class| class != 0) {
        // SAFETY: a slab's memory can be read, and the tag is in the same granule.
        if let Some((tag, state)) = unsafe { Place::at(address).read() } {
            return Found::Tagged(Place::at(address), tag, state);
        }
    }
    locate_anywhere(address)
}

#[cold]
fn locate_anywhere(address: usize) -> Found {
    if early::has(address) {
        return Found::Plain;
    }
    let tagged = |found: Option<(Tag, State)>| {
        found.map_or(Found::Nothing, |(tag, state)| Found::Tagged(Place::at(address), tag, state))
    };
    let is_aligned = address.is_multiple_of(QUANTUM);
    let memory = match HEAP.memory_at(address) {
        // Its tag may be at the end of the first granule.
        Memory::Other => HEAP.memory_at(address.wrapping_sub(TAG)),
        memory => memory,
    };
    match memory {
        Memory::Slot { slab, .. } if address.wrapping_sub(slab) < TAG => Found::Nothing,
        Memory::Slot { slot, .. } => in_slab(Place::at(address), slot),
        Memory::Large(start) if start == address => Found::Plain,
        // SAFETY: the pages of a large block up to its tag are not guarded.
        Memory::Large(start) => unsafe { in_large(Place::at(address), start) },
        // Of blocks outside the arenas only the first address is known.
        Memory::Other if is_aligned && is_outside(address) => {
            // SAFETY: such a block has no guard before its tag.
            tagged(unsafe { Place::at(address).read() })
        }
        Memory::Other if HEAP.is_own(address) => Found::Nothing,
        Memory::Other => Found::Foreign,
    }
}

/// Whether `address` lies where a block in a mapping of its own can begin.
fn is_outside(address: usize) -> bool {
    let start = address.wrapping_sub(TAG) & !(HEAP.os.page_bytes() - 1);
    let page = HEAP.os.page_bytes();
    HEAP.memory_at(start) == Memory::Large(start)
        || HEAP.memory_at(start.wrapping_sub(page)) == Memory::Large(start.wrapping_sub(page))
}

/// `slot` is where the slot begins that the address lies in.
fn in_slab(place: Place, slot: usize) -> Found {
    // SAFETY: all of it lies in the slab, whose memory can be read, but for the page after a block of no bytes.
    unsafe {
        if place.block.is_multiple_of(QUANTUM)
            && let Some((tag, state)) = place.read()
        {
            return Found::Tagged(place, tag, state);
        }
        let fronts = [TAG, 2 * TAG];
        near(place, slot, fronts.into_iter(), fronts.contains(&(place.block - slot)))
    }
}

/// # Safety
/// A large block begins at `start`, in the same granule as the address.
unsafe fn in_large(place: Place, start: usize) -> Found {
    let page = HEAP.os.page_bytes();
    let may_begin = place.block - start >= TAG
        && place.block - start <= page.max(place.block & place.block.wrapping_neg())
        && place.block.is_multiple_of(QUANTUM);
    // SAFETY: the tag lies in the first two pages, and so do all that can be.
    unsafe {
        if may_begin && let Some((tag, state)) = place.read() {
            return Found::Tagged(place, tag, state);
        }
        near(place, start, (TAG..=page).step_by(QUANTUM), may_begin)
    }
}

/// What is at an address without a tag, in memory whose block begins at one of `fronts`. Blocks that were there before have left
/// tags of freed ones.
///
/// # Safety
/// All tags that can be there can be read, and with `may_begin` that of `place`.
unsafe fn near(place: Place, memory: usize, fronts: impl Iterator<Item = usize> + Clone, may_begin: bool) -> Found {
    let find = |wanted: State| {
        fronts.clone().find_map(|front| {
            let other = Place::at(memory + front);
            // SAFETY: the tag can be read (fn contract).
            let (tag, state) = unsafe { other.read() }?;
            (state == wanted && tag.front == front).then_some(Found::Inside(other, tag))
        })
    };
    if let Some(inside) = find(State::Live) {
        return inside;
    }
    // SAFETY: the tag can be read (fn contract).
    if may_begin && !unsafe { place.is_blank() } {
        return Found::Broken;
    }
    find(State::Freed).unwrap_or(Found::Nothing)
}
