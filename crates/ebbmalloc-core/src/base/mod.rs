//! What every layer stands on: synchronisation through one seam, locks with ranks, metadata memory,
//! the corruption abort, what a purge came to.

pub mod corrupt;
pub mod exact;
pub mod holds;
pub mod life;
pub mod lock;
pub mod metadata;
pub mod purged;
pub mod rank;
pub mod sync;
