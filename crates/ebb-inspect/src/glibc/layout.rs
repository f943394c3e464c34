//! Where the fields of glibc's malloc lie, by version (x86-64).
//!
//! Read off the structures of 2.31, 2.36, 2.41 and 2.43 and tried on Debian's packages of these; the
//! versions between share their layouts. What is read is checked for plausibility, so that a libc
//! whose distribution changed the structures is refused rather than misread.

use super::version::Version;

/// The layout of one range of versions. Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Fields of an arena (`malloc_state`).
    pub arena: ArenaFields,
    /// Fields of the parameters (`malloc_par`).
    pub parameters: ParameterFields,
    /// Bytes of the head of a heap of a secondary arena (`heap_info`).
    pub heap_head_bytes: u64,
    /// Threads' caches.
    pub tcache: TcacheFields,
    /// Whether the links of single lists are stored combined with their own address (since 2.32).
    pub mangled_links: bool,
    /// Whether a chunk that is a mapping counts its own header out of its size (since 2.43).
    pub mmapped_without_header: bool,
}

/// Offsets in `malloc_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaFields {
    /// Heads of the fastbins; none since 2.43.
    pub fastbins: Option<u64>,
    pub top: u64,
    pub bins: u64,
    pub next: u64,
    pub attached_threads: u64,
    pub system_mem: u64,
    pub max_system_mem: u64,
    /// Bytes of the whole.
    pub len: u64,
}

/// Offsets in `malloc_par`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterFields {
    /// Since glibc 2.35.
    pub thp_pagesize: Option<u64>,
    /// Since glibc 2.35.
    pub hp_pagesize: Option<u64>,
    pub n_mmaps: u64,
    pub no_dyn_threshold: u64,
    pub mmapped_mem: u64,
    pub sbrk_base: u64,
    pub tcache_bins: u64,
    /// Bytes up to the last field that is read.
    pub len: u64,
}

/// The structure of a thread's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcacheFields {
    /// Size of the chunk that holds it.
    pub chunk_bytes: u64,
    /// Number of lists.
    pub bins: usize,
    /// Where the heads of the lists begin; before it lie 16-bit counts.
    pub entries: u64,
}

/// Lists of a cache that hold chunks of one size each; those after them hold ranges of sizes.
pub const TCACHE_SMALL_BINS: usize = 64;
/// Fastbins of an arena.
pub const FASTBINS: usize = 10;
/// Bins of an arena, the unsorted one included.
pub const BINS: usize = 127;
/// The smallest chunk.
pub const MIN_CHUNK_BYTES: u64 = 32;
/// A chunk's header: the size of the previous one if that is free, and its own with three flags.
pub const HEADER_BYTES: u64 = 16;
/// The largest number of bytes that a free chunk writes into itself.
pub const FREE_CHUNK_HEAD_BYTES: u64 = 48;
/// Address space of a heap of a secondary arena, unless huge pages are requested.
pub const HEAP_BYTES: u64 = 64 << 20;

const CLASSIC_ARENA: ArenaFields = ArenaFields {
    fastbins: Some(0x10),
    top: 0x60,
    bins: 0x70,
    next: 0x870,
    attached_threads: 0x880,
    system_mem: 0x888,
    max_system_mem: 0x890,
    len: 0x898,
};

const ARENA_2_43: ArenaFields = ArenaFields {
    fastbins: None,
    top: 0x8,
    bins: 0x18,
    next: 0x818,
    attached_threads: 0x828,
    system_mem: 0x830,
    max_system_mem: 0x838,
    len: 0x840,
};

const PARAMETERS_2_30: ParameterFields = ParameterFields {
    thp_pagesize: None,
    hp_pagesize: None,
    n_mmaps: 0x28,
    no_dyn_threshold: 0x34,
    mmapped_mem: 0x38,
    sbrk_base: 0x48,
    tcache_bins: 0x50,
    len: 0x68,
};

const PARAMETERS_2_35: ParameterFields = ParameterFields {
    thp_pagesize: Some(0x28),
    hp_pagesize: Some(0x30),
    n_mmaps: 0x3c,
    no_dyn_threshold: 0x48,
    mmapped_mem: 0x50,
    sbrk_base: 0x60,
    tcache_bins: 0x68,
    len: 0x80,
};

const PARAMETERS_2_43: ParameterFields = ParameterFields {
    thp_pagesize: Some(0x30),
    hp_pagesize: Some(0x38),
    n_mmaps: 0x44,
    no_dyn_threshold: 0x50,
    mmapped_mem: 0x58,
    sbrk_base: 0x68,
    tcache_bins: 0x70,
    len: 0x88,
};

const TCACHE_2_30: TcacheFields = TcacheFields { chunk_bytes: 0x290, bins: 64, entries: 0x80 };

const TCACHE_2_42: TcacheFields = TcacheFields { chunk_bytes: 0x300, bins: 76, entries: 0x98 };

/// 65536 moves.
const MOST_DRIFT_BYTES: u64 = 1 << 20;

impl Layout {
    /// What the sum of mapped chunks is a multiple of. Where a chunk leaves its header out, each realloc of one that the
    /// kernel moves adds 16 bytes that are nowhere (mremap_chunk of 2.43).
    pub fn mmapped_unit(&self) -> u64 {
        if self.mmapped_without_header { HEADER_BYTES } else { 4096 }
    }

    /// How much more than there is that sum may be.
    pub fn mmapped_drift_bytes(&self) -> u64 {
        if self.mmapped_without_header { MOST_DRIFT_BYTES } else { 0 }
    }

    /// The layout of `version`; `None` for versions before the oldest that is known. A version after the
    /// newest that is known gets that one's, and the checks decide.
    pub fn of(version: Version) -> Option<Self> {
        let since = |minor| version >= Version { major: 2, minor };
        if !since(30) {
            return None;
        }
        Some(Self {
            arena: if since(43) { ARENA_2_43 } else { CLASSIC_ARENA },
            parameters: match () {
                () if since(43) => PARAMETERS_2_43,
                () if since(35) => PARAMETERS_2_35,
                () => PARAMETERS_2_30,
            },
            heap_head_bytes: if since(35) { 0x30 } else { 0x20 },
            tcache: if since(42) { TCACHE_2_42 } else { TCACHE_2_30 },
            mangled_links: since(32),
            mmapped_without_header: since(43),
        })
    }

    /// The link to the next entry of a single list, as stored at `address`.
    pub fn link(&self, address: u64, stored: u64) -> u64 {
        if self.mangled_links { (address >> 12) ^ stored } else { stored }
    }
}
