//! A shard: a bin for each class. Threads on different processors use different ones.

use crate::size::CLASSES;
use crate::slab::bin::Bin;

/// Shards at most: copies of every bin, so that threads on different processors do not meet.
pub const SHARDS: usize = if cfg!(loom) { 1 } else { 8 };
/// A bin with cache lines of its own, so that neighbours do not slow each other down.
#[repr(align(64))]
pub struct PaddedBin(pub Bin);

/// The bins of one shard by class. Entry 0 is not used.
pub type Shard = [PaddedBin; CLASSES + 1];
