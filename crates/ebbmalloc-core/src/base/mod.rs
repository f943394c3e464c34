//! What every layer stands on: synchronisation through one seam, locks with ranks, metadata memory,
//! the corruption abort.

pub mod corrupt;
pub mod lock;
pub mod metadata;
pub mod sync;
