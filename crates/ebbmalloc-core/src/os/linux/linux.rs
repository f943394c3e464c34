//! What the process knows of its kernel: read by all files of this folder, each of which says what its words mean.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize};

/// Nothing is known yet of what the kernel can do; of a word whose other values its file has.
pub(super) const UNKNOWN: u8 = 0;

/// The advice on transparent huge pages that the kernel gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HugePages {
    /// Not to make them. The first, so that an unset word means it.
    Refused,
    /// Nothing: it does as its own settings say.
    Left,
    /// To make them.
    Wanted,
    /// Not to make them, but for what asks for them.
    Asked,
}

/// The running kernel. All state is interior, so that one `static` serves every thread.
pub struct Linux {
    /// Bytes of a page, 0 until asked for.
    pub(super) page_bytes: AtomicUsize,
    /// Whether vectors may go to process_madvise; see `discard`.
    pub(super) vectors: AtomicU8,
    /// Whether membarrier is registered, or refused; see `barrier`.
    pub(super) barrier: AtomicU8,
    /// Address of the page that forks wipe; see `fork_mark`.
    pub(super) fork_mark: AtomicUsize,
    /// In a sandbox, where a call too many may kill; see `sandbox`.
    pub(super) confined: AtomicBool,
    /// The last answer about RLIMIT_AS, 0 for none; in a sandbox it stays the answer.
    pub(super) address_space: AtomicUsize,
    /// Whether the kernel counts all that may be written; see `scarcity`.
    pub(super) overcommit: AtomicU8,
    /// Whether that, or RLIMIT_DATA, limits this process; in a sandbox it stays so.
    pub(super) charged: AtomicBool,
    /// Id of the process that the allocator's state belongs to, 0 until it is marked; see `fork_mark`.
    pub(super) owner: AtomicU32,
    /// Thread id of the last purger until it is known to have left the process; see `thread`.
    pub(super) purger_leaving: AtomicU32,
    /// Base of the purger's stack and TLS block, mapped once and used by one purger after the other.
    pub(super) purger_block: AtomicUsize,
    /// Settings: free address space is unmapped. Set at boot.
    pub(super) unmaps: AtomicBool,
    /// Settings: the advice on huge pages that the kernel gets, for the heap and for metadata. Set at boot.
    pub(super) huge_pages: AtomicU8,
    pub(super) huge_metadata: AtomicU8,
    /// How pages are made to fault; see `guard`.
    pub(super) guards: AtomicU8,
    /// Settings: no guards after large blocks. Set at boot.
    pub(super) no_ends: AtomicBool,
}

impl Linux {
    /// A kernel about which nothing is known yet: all zero, so that the static heap takes no room in the file.
    pub const fn new() -> Self {
        Self {
            page_bytes: AtomicUsize::new(0),
            vectors: AtomicU8::new(UNKNOWN),
            barrier: AtomicU8::new(UNKNOWN),
            fork_mark: AtomicUsize::new(0),
            overcommit: AtomicU8::new(UNKNOWN),
            charged: AtomicBool::new(false),
            confined: AtomicBool::new(false),
            address_space: AtomicUsize::new(0),
            owner: AtomicU32::new(0),
            purger_leaving: AtomicU32::new(0),
            purger_block: AtomicUsize::new(0),
            unmaps: AtomicBool::new(false),
            huge_pages: AtomicU8::new(HugePages::Refused as u8),
            huge_metadata: AtomicU8::new(HugePages::Refused as u8),
            guards: AtomicU8::new(UNKNOWN),
            no_ends: AtomicBool::new(false),
        }
    }
}
