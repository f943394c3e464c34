//! The descriptor of a granule: what its 64 KiB of address space hold. One for each granule of a
//! region, in metadata memory; never on the heap's own pages.
//!
//! Of a large block and of a free extent only the first granule and the last say what they are, so that a unit of
//! any length is made and freed by a few writes. The descriptors between them hold what they held before (never that
//! of a first granule in use), or zero: none is written before its granule is the first or the last of a unit, and
//! the pages of those inside clean extents are returned.
//!
//! Who may touch which field: `base`, `kind`, `head`, `class` and `shard` change only
//! while the granule belongs to no other thread (free, under the arena's lock) and may be read by
//! the thread that holds a pointer into a live block; the fields of a slab belong to its bin's lock, the
//! fields of an extent or a large block to the arena's lock.

use crate::base::best_fit::Extent;
use crate::base::corrupt::Corruption;
use crate::base::list::Linked;
use crate::base::tree::Node;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::AtomicUsize;

/// What a granule is part of.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never the first or the last granule of a unit.
    Unused = 0,
    /// First or last granule of a free extent (the inner ones keep stale kinds, never a head's).
    Free,
    /// First granule of a slab.
    Slab,
    /// Later granule of a slab.
    SlabTail,
    /// First granule of a large block.
    Large,
    /// Last granule of a large block of several.
    LargeTail,
    /// Part of an extent that is being returned to the kernel: in no tree, merged with nothing.
    Leaving,
}

impl Kind {
    /// The error for an address that is no block, in a granule of this kind.
    pub fn misuse(self) -> Corruption {
        match self {
            Self::Free | Self::Leaving => Corruption::DoubleFree,
            Self::Large | Self::LargeTail => Corruption::InteriorPointer,
            Self::Unused | Self::Slab | Self::SlabTail => Corruption::NoBlock,
        }
    }
}

/// What the pages of a free extent hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fill {
    /// No page is resident; all read as zero.
    Clean = 0,
    /// Pages may be resident and hold old data.
    Dirty = 1,
}

/// A large block lies on the list of blocks whose tail pages are resident though unused.
pub const TAIL_LISTED: u8 = 1;
/// The tail of a large block is being returned to the kernel right now.
pub const TAIL_LEAVING: u8 = 2;
/// The block was freed while its tail was leaving; the purger completes the free.
pub const FREE_PENDING: u8 = 4;
/// The block's memory came from a dirty extent, so its tail may be resident.
pub const FROM_DIRTY: u8 = 8;

/// A clean extent lies on the list of those whose inner descriptors may be resident.
pub const STALE_INSIDE: u8 = 16;
/// An extent that was given up, with its addresses.
pub const GIVEN_ADDRESSES: u8 = 32;

/// See the module. What a search in a tree reads lies in the first 64 bytes: one line of the cache.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Granule {
    /// Address of the granule; true in every granule of a slab and in the first of everything else. Of a slab with a lead
    /// ([`leads`](crate::size::leads)) the first granule has the address of the first slot.
    pub base: usize,
    /// Head of the slab, large block or free extent that this granule is the first or last of; for
    /// every granule of a slab.
    pub head: *mut Granule,
    /// See [`Kind`].
    pub kind: Kind,
    /// Free extent: see [`Fill`].
    pub fill: Fill,
    /// Large block, clean extent: the flags above.
    pub flags: u8,
    /// Slab: size class.
    pub class: u8,
    /// Slab: shard that it belongs to.
    pub shard: u8,
    /// Slab: see [`Room`].
    pub room: Room,
    /// Slab: on its bin's list of slabs to visit.
    pub listed: bool,
    /// Slab: some of its pages were refused by the kernel (locked): not to be tried again.
    pub locked: bool,
    /// Slab: free slots in the bitmap. First granule of a run in a dirty extent: granules of the run.
    pub free: u32,
    /// Granules of the slab, extent or large block.
    pub len: u32,
    /// First granule of a run in a dirty extent: the tick at which the run became free; for an extent's head see also
    /// `oldest`. Slab: the tick of `touched`.
    pub stamp: u32,
    /// Dirty extent: the smallest stamp among its runs. Clean extent: the tick at which it last
    /// merged. Slab: the generation of processes that made it.
    pub oldest: u32,
    /// Slab with room, free extent: left child in the tree.
    pub left: *mut Granule,
    /// Like `left`: right child.
    pub right: *mut Granule,
    /// Slab: list to visit. Dirty extent: list by age. Clean extent: list of those
    /// with stale insides. Large block: list of tails.
    pub prev: *mut Granule,
    /// Like `prev`.
    pub next: *mut Granule,
    /// Slab: pages that are resident, or were when last seen.
    pub resident: u64,
    /// Slab: pages that were resident at some time; a page of these that is not resident now was
    /// returned, and faults again when it is touched.
    pub used: u64,
    /// Slab: pages on which no slot was live at the last tick. Large block: whether a guard is after it.
    pub seen: u64,
    /// Slab: pages from which a slot was taken at tick `stamp`. Large block: address of its sample's record, or 0; only
    /// the block's owner uses it.
    pub touched: u64,
    /// Slab: pages that are being returned to the kernel; their free slots are out of the bitmap.
    pub leaving: u64,
    /// Slab: the bitmap of free slots itself (up to 64 slots), or its address. Large block: bytes in
    /// use, a multiple of the page size.
    pub bits: u64,
    /// Slab: address of its bitmap of tails, once it lent slots to a larger class.
    pub tails: AtomicUsize,
}

/// How many of a slab's slots are free, and so which of its bin's trees it is in.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// At least one, and at most half of them.
    Some = 0,
    /// More than half of them.
    Much = 1,
    /// None: it is in no tree.
    None = 2,
}

impl Granule {
    /// The descriptor of an unused granule at `base`.
    pub const fn new(base: usize) -> Self {
        Self {
            base,
            head: null_mut(),
            kind: Kind::Unused,
            fill: Fill::Clean,
            flags: 0,
            class: 0,
            shard: 0,
            room: Room::None,
            listed: false,
            locked: false,
            free: 0,
            len: 0,
            stamp: 0,
            oldest: 0,
            left: null_mut(),
            right: null_mut(),
            prev: null_mut(),
            next: null_mut(),
            resident: 0,
            used: 0,
            seen: 0,
            touched: 0,
            leaving: 0,
            bits: 0,
            tails: AtomicUsize::new(0),
        }
    }
}

/// Marks the first and the last of `len` granules as ends of a unit of `kind`, so that its neighbours, and look-ups of an
/// address, find its head.
///
/// # Safety
/// The granules belong to the caller alone.
pub unsafe fn mark_ends(head: *mut Granule, len: u32, kind: Kind) {
    let last = head.wrapping_add(len as usize - 1);
    // SAFETY: the granules belong to the caller alone (fn contract), so the descriptors at both ends may be written.
    unsafe {
        (*last).kind = kind;
        (*last).head = head;
        (*head).kind = kind;
        (*head).head = head;
        (*head).len = len;
    }
}

/// The whole pages of `page_bytes` between the first descriptor and the last of the `len` granules at
/// `head`: what an extent needs no more once it is clean. Empty, or reversed, if there is none.
pub fn inner_descriptors(head: *mut Granule, len: u32, page_bytes: usize) -> Range<usize> {
    let inner = head.wrapping_add(1) as usize;
    let last = head.wrapping_add(len as usize - 1) as usize;
    inner.next_multiple_of(page_bytes)..last - last % page_bytes
}

impl Linked for Granule {
    unsafe fn prev(item: *mut Self) -> *mut *mut Self {
        // SAFETY: a valid descriptor (contract of `Linked`) has the field.
        unsafe { &raw mut (*item).prev }
    }

    unsafe fn next(item: *mut Self) -> *mut *mut Self {
        // SAFETY: a valid descriptor (contract of `Linked`) has the field.
        unsafe { &raw mut (*item).next }
    }
}

impl Extent for Granule {
    unsafe fn length(node: *mut Self) -> u32 {
        // SAFETY: a valid descriptor (contract of `Extent`) has the field.
        unsafe { (*node).len }
    }
}

impl Node for Granule {
    unsafe fn left(node: *mut Self) -> *mut *mut Self {
        // SAFETY: a valid descriptor (contract of `Node`) has the field.
        unsafe { &raw mut (*node).left }
    }

    unsafe fn right(node: *mut Self) -> *mut *mut Self {
        // SAFETY: a valid descriptor (contract of `Node`) has the field.
        unsafe { &raw mut (*node).right }
    }

    unsafe fn address(node: *mut Self) -> usize {
        // SAFETY: the descriptor is valid (contract of `Node`), and its base does not change while it is in a tree.
        unsafe { (*node).base }
    }
}
