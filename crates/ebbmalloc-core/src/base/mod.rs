//! What every layer stands on: synchronisation through one seam, metadata memory, the corruption
//! abort.
pub mod sync;
