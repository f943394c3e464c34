//! Figures of the whole heap, as of the last [epoch](super::epoch).
//!
//! They are ordered: allocated <= active <= resident <= mapped.

key! {
    /// Bytes of all blocks that are with the program, at their usable sizes.
    allocated: "stats.allocated", usize, ReadOnly;
    /// Bytes of all pages that hold such blocks.
    active: "stats.active", usize, ReadOnly;
    /// Bytes that the allocator's own records take.
    metadata: "stats.metadata", usize, ReadOnly;
    /// Bytes that are in memory: what the kernel counts as resident.
    resident: "stats.resident", usize, ReadOnly;
    /// Bytes of address space that the allocator has made usable.
    mapped: "stats.mapped", usize, ReadOnly;
    /// Bytes of address space that are kept for later, without memory.
    retained: "stats.retained", usize, ReadOnly;
}
