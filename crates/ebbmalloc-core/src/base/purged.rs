//! What returning memory to the kernel came to: the figures that every layer with idle memory gives.

/// What a purge did, and whether there is more to do later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Bytes that the kernel took.
    pub returned_bytes: usize,
    /// Bytes that the kernel refused (locked pages).
    pub refused_bytes: usize,
    /// Calls into the kernel (batches).
    pub calls: usize,
    /// Something free and resident is left that was not idle for long enough.
    pub more: bool,
    /// Bytes of resident pages inside slabs that hold nothing live and stay for now.
    pub left_bytes: usize,
}

impl Purged {
    /// Adds another purge's figures.
    pub fn add(&mut self, other: Self) {
        self.returned_bytes += other.returned_bytes;
        self.refused_bytes += other.refused_bytes;
        self.calls += other.calls;
        self.more |= other.more;
        self.left_bytes += other.left_bytes;
    }
}

/// What a pass over all caches did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Bytes put back into slabs.
    pub put_back_bytes: usize,
    /// Bytes left in the caches that were taken.
    pub kept_bytes: usize,
    /// Caches taken.
    pub claimed: usize,
    /// Caches whose owner was inside.
    pub busy: usize,
}
