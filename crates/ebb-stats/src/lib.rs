//! The counters that a process running on ebbmalloc publishes, and how to read them.
//!
//! The allocator writes one [`Page`] at every tick of its purger, at every step of growth, on request and at exit; the tool `ebb` reads
//! it from outside, out of the process's memory or out of the file that `stats_file` names, without
//! stopping anything. Next to it is a [`layout::Layout`], which says where the heap itself is to be read. The two
//! halves of the project meet in this crate and nowhere else.
//!
//! What always holds: the page starts with [`MAGIC`] at an address that is a multiple of
//! [`PAGE_ALIGN`]; counters are 64-bit words in native byte order in the order of [`Snapshot`]'s
//! fields; new counters go at the end and leave [`VERSION`] alone, a change of meaning raises it.
//! Each counter is written by itself: a reader sees each whole, but not all at one instant.
//!
//! ```
//! use ebb_stats::{Page, Snapshot, find};
//!
//! static COUNTERS: Page = Page::new();
//! COUNTERS.publish(&Snapshot { live_bytes: 4096, ..Snapshot::default() });
//! assert_eq!(COUNTERS.snapshot().live_bytes, 4096);
//!
//! // A reader looks for the page in a copy of the process's memory.
//! let mut memory = vec![0; 4096];
//! memory[64..72].copy_from_slice(&ebb_stats::MAGIC);
//! memory[72..76].copy_from_slice(&ebb_stats::VERSION.to_ne_bytes());
//! memory[76..80].copy_from_slice(&(ebb_stats::NAMES.len() as u32).to_ne_bytes());
//! let at = find(&memory).unwrap();
//! assert_eq!(Snapshot::from_bytes(&memory[at..]), Ok(Snapshot::default()));
//! ```
#![no_std]
// What can lose bits is checked, or argued.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]
#![forbid(unsafe_code)]

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

pub mod guards;
pub mod layout;
pub mod note;
pub mod profile;
#[cfg(test)]
mod tests;

/// The first eight bytes of a page of counters.
pub const MAGIC: [u8; 8] = *b"ebbstat\0";

/// The version of the counters' meaning. 2 left out six counters of version 1 that had no reader.
pub const VERSION: u32 = 2;

/// Alignment of a page in the memory of a process: where a search for [`MAGIC`] may look.
pub const PAGE_ALIGN: usize = 64;

/// Bytes before the first counter: magic, version, number of counters.
pub const HEADER_BYTES: usize = 16;

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// The published counters, written by the allocator.
        #[repr(C, align(64))]
        #[derive(Debug)]
        pub struct Page {
            magic: [u8; 8],
            version: u32,
            counters: u32,
            $($(#[$doc])+ pub $name: AtomicU64,)+
        }

        /// The counters at one time, as plain numbers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Snapshot {
            $($(#[$doc])+ pub $name: u64,)+
        }

        /// The names of the counters, in the order of their words.
        pub const NAMES: &[&str] = &[$(stringify!($name)),+];

        impl Page {
            /// A page with all counters at zero.
#[expect(
                clippy::cast_possible_truncation,
                reason = "there are fewer than a hundred counters"
            )]
            pub const fn new() -> Self {
                Self {
                    magic: MAGIC,
                    version: VERSION,
                    counters: NAMES.len() as u32,
                    $($name: AtomicU64::new(0),)+
                }
            }

            /// Writes all counters. Relaxed: each is a figure of its own, and no reader infers
            /// anything else from it.
            pub fn publish(&self, snapshot: &Snapshot) {
                $(self.$name.store(snapshot.$name, Ordering::Relaxed);)+
            }

            /// Reads all counters, within the process itself.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }

        impl Snapshot {
            fn from_words(mut word: impl FnMut(usize) -> Option<u64>) -> Option<Self> {
                let mut index = 0;
                let mut next = || {
                    index += 1;
                    word(index - 1)
                };
                Some(Self { $($name: next()?,)+ })
            }

            /// The counters as words, in the order of [`NAMES`].
            pub fn words(&self) -> [u64; NAMES.len()] {
                [$(self.$name),+]
            }
        }
    };
}

counters! {
    /// Bytes that the program has allocated and not freed, rounded up to size classes.
    live_bytes,
    /// Freed bytes that lie in threads' caches, ready for the next request.
    cached_bytes,
    /// Free bytes on resident pages, whether something live lies there as well or not.
    idle_bytes,
    /// Bytes of heap pages that are resident, as far as the allocator knows.
    resident_bytes,
    /// Bytes of address space that are committed (readable and writable).
    mapped_bytes,
    /// Bytes of the allocator's own bookkeeping that may be resident.
    metadata_bytes,
    /// Bytes returned to the kernel since the start.
    returned_bytes,
    /// Bytes of pages used again after they had been returned.
    refaulted_bytes,
    /// CPU time that purges took, in nanoseconds.
    purge_cpu_ns,
    /// Threads that have a cache now.
    threads,
    /// The kernel's and libc's mechanisms in force: bits of [`mechanism`].
    mechanisms,
    /// Idle time in milliseconds after which pages are returned; `u64::MAX` for never.
    idle_time_ms,
    /// Kernel's id of the process that publishes.
    process_id,
    /// Monotonic clock of the last publication, in milliseconds.
    published_ms,
    /// Bytes that the kernel would not take back (locked in memory).
    refused_bytes,
    /// Bytes of resident pages that hold nothing live: what is returned next, part of `idle_bytes`. The thread that
    /// grew reports small blocks as the last purge left them. [`UNKNOWN`] where it is not published.
    returnable_bytes,
}

/// Bits of `mechanisms`: what of the kernel and of libc the allocator can use in this process, and whom it serves.
pub mod mechanism {
    /// membarrier works: other threads' caches can be drained.
    pub const MEMBARRIER: u64 = 1 << 0;
    /// process_madvise works: many runs of pages are returned in one call.
    pub const PROCESS_MADVISE: u64 = 1 << 1;
    /// A purger thread can be started (it need not run at the moment).
    pub const PURGER_THREAD: u64 = 1 << 2;
    /// Fork handlers are registered with libc.
    pub const FORK_HANDLERS: u64 = 1 << 3;
    /// libc tells when a thread ends.
    pub const THREAD_EXIT: u64 = 1 << 4;
    /// Forks that run no handlers are noticed (MADV_WIPEONFORK).
    pub const FORK_MARK: u64 = 1 << 5;
    /// CPython's objects come from here: it was found at its start and not forbidden. The user may have chosen another
    /// allocator for it (`PYTHONMALLOC`).
    pub const CPYTHON: u64 = 1 << 6;

    /// All mechanisms with the names under which reports show them.
    pub const ALL: [(u64, &str); 7] = [
        (MEMBARRIER, "membarrier"),
        (PROCESS_MADVISE, "process_madvise"),
        (PURGER_THREAD, "purger_thread"),
        (FORK_HANDLERS, "fork_handlers"),
        (THREAD_EXIT, "thread_exit"),
        (FORK_MARK, "fork_mark"),
        (CPYTHON, "cpython"),
    ];

    /// The names of the mechanisms in `bits`.
    pub fn names(bits: u64) -> impl Iterator<Item = &'static str> {
        let set = ALL.into_iter().filter(move |(bit, _)| bits & bit != 0);
        set.map(|(_, name)| name)
    }
}

/// A counter that is not published.
pub const UNKNOWN: u64 = u64::MAX;

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}

/// Why bytes are not a page of counters that this version can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The bytes do not start with [`MAGIC`].
    NoMagic,
    /// The counters have another meaning: this is their version.
    OtherVersion(u32),
    /// Fewer counters than this version has, or fewer bytes than counters: so many are there.
    TooShort(usize),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMagic => f.write_str("these bytes are not ebbmalloc's counters"),
            Self::OtherVersion(version) => {
                write!(f, "ebbmalloc's counters have version {version}; this reader knows {VERSION}")
            }
            Self::TooShort(counters) => {
                write!(f, "{counters} of ebbmalloc's {} counters are there", NAMES.len())
            }
        }
    }
}

impl core::error::Error for Unreadable {}

impl Snapshot {
    /// Reads a page of counters from `bytes`, which start at its magic.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Unreadable> {
        let header = |at: usize| {
            let field = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
            field.map(u32::from_ne_bytes).ok_or(Unreadable::TooShort(0))
        };
        if bytes.get(..MAGIC.len()) != Some(&MAGIC) {
            return Err(Unreadable::NoMagic);
        }
        let (version, counters) = (header(8)?, header(12)? as usize);
        if version != VERSION {
            return Err(Unreadable::OtherVersion(version));
        }
        let words = bytes.get(HEADER_BYTES..).unwrap_or_default().as_chunks().0;
        let there = counters.min(words.len());
        let word = |index: usize| (index < there).then(|| u64::from_ne_bytes(words[index]));
        Self::from_words(word).ok_or(Unreadable::TooShort(there))
    }
}

/// Offset of a page of counters within `memory`, a copy of a process's memory whose first byte lay
/// at an address that is a multiple of [`PAGE_ALIGN`]. The page may be of another version, which
/// [`Snapshot::from_bytes`] names.
pub fn find(memory: &[u8]) -> Option<usize> {
    /// What follows the magic elsewhere is hardly ever one of these.
    const VERSIONS: core::ops::Range<u32> = 1..256;
    let mut offsets = (0..memory.len()).step_by(PAGE_ALIGN);
    offsets.find(|&at| match Snapshot::from_bytes(&memory[at..]) {
        Ok(_) => true,
        Err(Unreadable::OtherVersion(version)) => VERSIONS.contains(&version),
        Err(Unreadable::NoMagic | Unreadable::TooShort(_)) => false,
    })
}
