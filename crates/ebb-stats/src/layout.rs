//! Where a process's heap lies and how its structures are laid out: what it takes to read them from outside.
//!
//! The allocator has one [`Layout`] next to its page of counters, found in the same way and there before the first
//! request. It carries the offsets, so that a reader need not be of the allocator's own build.
//!
//! What always holds: [`VERSION`] is raised when what is read means something else, or is to be walked in another
//! way; a field that only moves needs nothing. In this version:
//!
//! - A view of a region is four words: its address, the granules of it that were ever used, its byte map, and its
//!   descriptors, one a granule. No region, or one that ended, has 0 granules.
//! - A descriptor's `kind` is one of [`kind`]; `len` tells of how many granules it is the first.
//! - Slots whose bit is set in a slab's bitmap are free, and so are all on pages that are `leaving`. A bitmap of up to
//!   64 slots is the word `bits`, of more it lies at that address. Masks of pages have a bit for each page of the slab.
//! - A cache's entries are addresses of free slots: those between a stack's `base` and `top`, and of a ration, whose
//!   words follow those of the stacks, between `low` and `top`.
//! - Explicit arenas lie at the addresses in a table; only the first `explicit_count` entries are ever used.

use core::sync::atomic::{AtomicPtr, Ordering};

/// The first eight bytes of a layout.
pub const MAGIC: [u8; 8] = *b"ebbheap\0";

/// The version of what the fields mean.
pub const VERSION: u64 = 3;

/// What a descriptor tells of.
pub mod kind {
    /// Nothing yet.
    pub const UNUSED: u8 = 0;
    /// The first or the last granule of a free extent.
    pub const FREE: u8 = 1;
    /// The first granule of a slab.
    pub const SLAB: u8 = 2;
    /// Another granule of a slab.
    pub const SLAB_TAIL: u8 = 3;
    /// The first granule of a large block.
    pub const LARGE: u8 = 4;
    /// The last granule of a large block.
    pub const LARGE_TAIL: u8 = 5;
    /// The first or the last granule of an extent on its way to the kernel.
    pub const LEAVING: u8 = 6;
}

/// A free extent's `fill` when pages of it may be resident.
pub const DIRTY: u8 = 1;

macro_rules! offsets {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Offsets in bytes, and numbers.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Offsets {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Offsets {
            /// How many there are.
            pub const COUNT: usize = [$(stringify!($name)),+].len();

            fn from_words(words: &[[u8; 8]]) -> Option<Self> {
                let mut words = words.iter();
                Some(Self { $($name: u64::from_ne_bytes(*words.next()?),)+ })
            }
        }
    };
}

offsets! {
    /// Bytes of a granule.
    granule_bytes,
    /// Heap: the views of its own arena's regions.
    heap_views,
    /// Views of an arena.
    views,
    /// Heap: the address of the table of explicit arenas.
    heap_explicit_table,
    /// Heap: places of that table that have been used.
    heap_explicit_count,
    /// Explicit arena: its views.
    explicit_views,
    /// Heap: the address of the first cache.
    heap_first_cache,
    /// Cache: the address of the next.
    cache_next,
    /// Cache: tops of its stacks, then of its rations.
    cache_top,
    /// Cache: low marks of its stacks, then of its rations.
    cache_low,
    /// Cache: bases of its stacks.
    cache_base,
    /// Size classes; number 0 is none.
    classes,
    /// Classes, from the first on, that have rations.
    rationed,
    /// Bytes of a class in the table.
    class_bytes,
    /// Class: bytes of a slot (32 bits).
    class_size,
    /// Class: slots of a slab (32 bits).
    class_slots,
    /// Class: granules of a slab (32 bits).
    class_granules,
    /// Bytes of a descriptor.
    descriptor_bytes,
    /// Descriptor: address of what it tells of.
    base,
    /// Descriptor: see [`kind`] (8 bits).
    kind,
    /// Free extent: see [`DIRTY`] (8 bits).
    fill,
    /// Slab: its class (8 bits).
    class,
    /// Descriptor: granules (32 bits).
    len,
    /// Slab: pages that are resident.
    resident,
    /// Slab: pages that are on their way to the kernel.
    leaving,
    /// Slab: the bitmap of free slots, or its address. Large block: bytes in use.
    bits,
    /// Heap: the pool of sampled guards ([`crate::guards`]).
    heap_guards,
}

/// The structures' offsets and addresses that a reader needs.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Layout {
    magic: [u8; 8],
    version: u64,
    heap: AtomicPtr<()>,
    classes: AtomicPtr<()>,
    offsets: Offsets,
}

/// Bytes of a layout.
pub const BYTES: usize = 32 + Offsets::COUNT * 8;

impl Layout {
    /// The layout of the heap at `heap`, whose table of classes is at `classes`. Pointers, since their addresses are
    /// not known before the program is loaded.
    pub const fn new(heap: *const (), classes: *const (), offsets: Offsets) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            heap: AtomicPtr::new(heap.cast_mut()),
            classes: AtomicPtr::new(classes.cast_mut()),
            offsets,
        }
    }

    /// What a reader finds, within the process itself.
    pub fn place(&self) -> Place {
        // Relaxed: they never change.
        Place {
            heap: self.heap.load(Ordering::Relaxed) as u64,
            classes: self.classes.load(Ordering::Relaxed) as u64,
            offsets: self.offsets,
        }
    }
}

/// A layout as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Address of the heap.
    pub heap: u64,
    /// Address of the table of size classes.
    pub classes: u64,
    /// Offsets of the structures' fields.
    pub offsets: Offsets,
}

impl Place {
    /// Reads a layout from `bytes`, which start at its magic. `None` for what is no layout, or one of another version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..MAGIC.len()) != Some(&MAGIC) {
            return None;
        }
        let words = bytes.as_chunks().0;
        let word = |index: usize| words.get(index).copied().map(u64::from_ne_bytes);
        if word(1)? != VERSION {
            return None;
        }
        Some(Self { heap: word(2)?, classes: word(3)?, offsets: Offsets::from_words(words.get(4..)?)? })
    }
}

/// The layout within `memory`, as [`crate::find`] finds a page of counters.
pub fn find(memory: &[u8]) -> Option<Place> {
    let mut offsets = (0..memory.len()).step_by(crate::PAGE_ALIGN);
    offsets.find_map(|at| Place::from_bytes(&memory[at..]))
}
