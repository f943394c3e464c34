//! The ranks of locks.

/// The order in which locks may be taken: a thread that holds one takes only greater ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The figures as they were taken last.
    Figures,
    /// The list of thread caches.
    Caches,
    /// The table of explicit arenas.
    Arenas,
    /// A bin: the slabs of one class and shard.
    Bin,
    /// The extents of pages.
    Arena,
    /// The heap profile.
    Profile,
    /// Metadata memory.
    Metadata,
}
