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

/// What a lock keeps of its rank: all of it, for tests and `holds`. Without them it keeps nothing: the locks in the static
/// heap are zero then, and take no room in the file.
#[cfg(any(test, feature = "holds"))]
pub type KeptRank = Rank;

/// What a lock keeps of its rank: nothing.
#[cfg(not(any(test, feature = "holds")))]
#[derive(Clone, Copy, Debug)]
pub struct KeptRank;

impl Rank {
    /// What a lock of this rank keeps.
    #[cfg(any(test, feature = "holds"))]
    pub const fn kept(self) -> KeptRank {
        self
    }

    /// What a lock of this rank keeps.
    #[cfg(not(any(test, feature = "holds")))]
    pub const fn kept(self) -> KeptRank {
        KeptRank
    }
}
