//! The layout of a heap in memory, for readers in other processes: `ebb` walks slabs and caches without stopping the
//! program. [`ebb_stats::layout`] explains each field.

use super::Heap;
use crate::arena::Arena;
use crate::arena::granule::{Fill, Granule, Kind};
use crate::cache::bins::Bins;
use crate::cache::cache::Cache;
use crate::cache::explicit::ExplicitArena;
use crate::cache::explicit_table::ExplicitArenas;
use crate::cache::ration::RATIONED;
use crate::cache::registry::Registry;
use crate::cache::stack::Stacks;
use crate::os::Os;
use crate::profile::Profile;
use crate::size::{CLASSES, Class, GRANULE};
use core::mem::offset_of;
use ebb_stats::layout::{DIRTY, Offsets, kind};

impl<O: Os> Heap<O> {
    /// Where the heap profile's table is ([`ebb_stats::profile`]).
    pub const PROFILE_TABLE: usize = offset_of!(Self, parts.profile) + Profile::TABLE;

    /// Where each structure and field is that a reader needs.
    pub const OFFSETS: Offsets = {
        let explicit = offset_of!(Self, parts.bins) + offset_of!(Bins, explicit);
        Offsets {
            granule_bytes: GRANULE as u64,
            heap_views: Self::FIRST_VIEW as u64,
            views: Arena::VIEW_COUNT as u64,
            heap_explicit_table: (explicit + ExplicitArenas::TABLE) as u64,
            heap_explicit_count: (explicit + ExplicitArenas::COUNT) as u64,
            explicit_views: (offset_of!(ExplicitArena, arena) + Arena::FIRST_VIEW) as u64,
            heap_first_cache: (offset_of!(Self, parts.caches) + Registry::FIRST) as u64,
            cache_next: Cache::NEXT as u64,
            cache_top: (Cache::STACKS + offset_of!(Stacks, top)) as u64,
            cache_low: (Cache::STACKS + offset_of!(Stacks, low)) as u64,
            cache_base: (Cache::STACKS + Stacks::BASES) as u64,
            classes: CLASSES as u64 + 1,
            rationed: RATIONED as u64,
            class_bytes: size_of::<Class>() as u64,
            class_size: offset_of!(Class, size) as u64,
            class_slots: offset_of!(Class, slots) as u64,
            class_granules: offset_of!(Class, granules) as u64,
            descriptor_bytes: size_of::<Granule>() as u64,
            base: offset_of!(Granule, base) as u64,
            kind: offset_of!(Granule, kind) as u64,
            fill: offset_of!(Granule, fill) as u64,
            class: offset_of!(Granule, class) as u64,
            len: offset_of!(Granule, len) as u64,
            resident: offset_of!(Granule, resident) as u64,
            leaving: offset_of!(Granule, leaving) as u64,
            bits: offset_of!(Granule, bits) as u64,
            heap_guards: offset_of!(Self, parts.guarded) as u64,
        }
    };
}

// The reader has these numbers as constants.
const _: () = {
    assert!(Kind::Unused as u8 == kind::UNUSED);
    assert!(Kind::Free as u8 == kind::FREE);
    assert!(Kind::Slab as u8 == kind::SLAB);
    assert!(Kind::SlabTail as u8 == kind::SLAB_TAIL);
    assert!(Kind::Large as u8 == kind::LARGE);
    assert!(Kind::LargeTail as u8 == kind::LARGE_TAIL);
    assert!(Kind::Leaving as u8 == kind::LEAVING);
    assert!(Fill::Dirty as u8 == DIRTY);
};
