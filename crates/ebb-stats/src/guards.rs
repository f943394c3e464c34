//! Sampled guards: blocks with a page of their own between two pages that fault, as they are read from outside, also from a
//! core dump.
//!
//! A pool is words: where its pages begin (0 before the first block), bytes of a page, the place that is tried next, and
//! [`PLACES`] records. Page `2 i + 1` of the pool is that of record `i`. A record is [`Record`], in words.

/// Blocks of a pool at most: 256 KiB where pages are of 4 KiB.
pub const PLACES: usize = 64;
/// Return addresses of a stack at most.
pub const DEPTH: usize = 16;
/// Words of a pool before its records.
pub const POOL_WORDS: usize = 3;
/// Words of a record.
pub const RECORD_WORDS: usize = 5 + 2 * DEPTH;

/// A record's first word.
pub mod state {
    /// No block yet.
    pub const EMPTY: u64 = 0;
    /// Between two states.
    pub const CHANGING: u64 = 1;
    /// The block is live.
    pub const LIVE: u64 = 2;
    /// The block was freed, and its page faults.
    pub const FREED: u64 = 3;
}

/// A record as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// See [`state`].
    pub state: u64,
    /// The block's address.
    pub block: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Kernel's ids of the threads that allocated and freed it.
    pub threads: [u64; 2],
    /// Where it was allocated and freed: return addresses, the innermost first, up to a 0.
    pub stacks: [[u64; DEPTH]; 2],
}

impl Record {
    /// Of its words.
    pub fn from_words(words: &[u64; RECORD_WORDS]) -> Self {
        let stack = |from: usize| core::array::from_fn(|index| words[from + index]);
        Self {
            state: words[0],
            block: words[1],
            bytes: words[2],
            threads: [words[3], words[4]],
            stacks: [stack(5), stack(5 + DEPTH)],
        }
    }
}
