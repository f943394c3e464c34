//! What every layer stands on: synchronisation through one seam, locks with ranks, metadata memory,
//! lists and trees of descriptors, the corruption abort, what a purge came to.

pub mod best_fit;
pub mod corrupt;
pub mod exact;
pub mod frames;
pub mod holds;
pub mod life;
pub mod list;
pub mod lock;
pub mod metadata;
pub mod purged;
pub mod rank;
pub mod sync;
pub mod tree;
