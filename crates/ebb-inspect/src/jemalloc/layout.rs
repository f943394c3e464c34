//! Where the fields of jemalloc's structures lie, by version, on x86-64 with pages of 4 KiB.
//!
//! Taken by `offsetof` from the sources of 5.2.1, 5.3.0 and 5.3.1, each configured as it is by default. Of
//! the options of `configure` none but `--enable-debug` and other page or address sizes moves a field.
//! A layout is used only when arenas and page map are found by it (`locate`), so a wrong one finds nothing.

/// Small size classes: the ones that are cut from slabs.
pub const SMALL_CLASSES: u64 = 36;
/// A slab has no more regions.
pub const MAX_REGIONS: u64 = 512;
/// Words of the bitmap of a slab.
pub const BITMAP_WORDS: usize = (MAX_REGIONS / 64) as usize;
/// Bytes of address space that a leaf of the page map covers, and its entries.
pub const LEAF_SPAN: u64 = 1 << 30;
pub const LEAF_ENTRIES: u64 = 1 << 18;
/// Entries of the page map's root.
pub const ROOT_ENTRIES: u64 = 1 << 18;
/// The page size of all layouts.
pub const PAGE_BYTES: u64 = 4096;

/// One version's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The version.
    pub version: (u32, u32, u32),
    pub arena: Arena,
    pub extent: Extent,
    pub cache: Cache,
    /// `base_t.blocks`.
    pub base_blocks: u64,
}

/// `arena_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arena {
    /// Its number, repeated in its base; 5.2 has none.
    pub index: Option<u64>,
    pub base: u64,
    /// Head of the ring of its threads' caches.
    pub caches: u64,
    /// Pages in use.
    pub active_pages: u64,
    pub dirty_decay_ms: u64,
    pub muzzy_decay_ms: u64,
}

/// `edata_t`, before 5.3 `extent_t`: the first word's parts. Address and size are the words after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// It is aligned to this, and the lower bits of a pointer to it are used otherwise.
    pub alignment: u64,
    pub state_shift: u32,
    pub state_bits: u32,
    pub class_shift: u32,
    pub free_shift: u32,
    /// The bitmap of a slab.
    pub bitmap: u64,
}

/// A thread's cache, as its descriptor leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Counted stacks, small and large classes apart (5.2).
    Counted,
    /// Stacks between addresses, all classes in one table of so many (5.3).
    Bounded(u64),
}

const EXTENT_5_3: Extent =
    Extent { alignment: 128, state_shift: 17, state_bits: 3, class_shift: 20, free_shift: 28, bitmap: 64 };

/// The layouts that are known, the newest first.
pub const LAYOUTS: [Layout; 3] = [
    Layout {
        version: (5, 3, 1),
        arena: Arena {
            index: Some(80640),
            base: 80648,
            caches: 11984,
            active_pages: 12296,
            dirty_decay_ms: 71064,
            muzzy_decay_ms: 72848,
        },
        extent: EXTENT_5_3,
        cache: Cache::Bounded(41),
        base_blocks: 160,
    },
    Layout {
        version: (5, 3, 0),
        arena: Arena {
            index: Some(78928),
            base: 78936,
            caches: 10400,
            active_pages: 10656,
            dirty_decay_ms: 69440,
            muzzy_decay_ms: 71224,
        },
        extent: EXTENT_5_3,
        cache: Cache::Bounded(73),
        base_blocks: 160,
    },
    Layout {
        version: (5, 2, 1),
        arena: Arena {
            index: None,
            base: 29480,
            caches: 10192,
            active_pages: 10344,
            dirty_decay_ms: 25496,
            muzzy_decay_ms: 27280,
        },
        extent: Extent { alignment: 64, state_shift: 16, state_bits: 2, class_shift: 18, free_shift: 26, bitmap: 64 },
        cache: Cache::Counted,
        base_blocks: 144,
    },
];

/// Bytes of the size class `index`: 8, then steps of 16 up to 128, then four in each doubling.
pub fn class_bytes(index: u64) -> Option<u64> {
    let Some(reduced) = index.checked_sub(1) else {
        return Some(8);
    };
    let (group, step) = (reduced / 4, reduced % 4);
    if group == 0 {
        return Some(16 * (step + 1));
    }
    if group > 57 {
        return None;
    }
    // The group's base is 64 for the first, and doubles; its steps are a quarter of that.
    let base = 1u64 << (group + 5);
    Some(base + (step + 1) * (base / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_jemallocs() {
        let first: Vec<u64> = (0..12).filter_map(class_bytes).collect();
        assert_eq!(first, [8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224]);
        assert_eq!(class_bytes(SMALL_CLASSES - 1), Some(14 << 10));
        assert_eq!(class_bytes(SMALL_CLASSES), Some(16 << 10));
        // The largest of all, and noise.
        assert_eq!(class_bytes(231), Some(7 << 60));
        assert_eq!(class_bytes(255), None);
    }
}
