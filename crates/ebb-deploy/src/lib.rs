//! Files that start services: read, judged and rewritten, so that an allocator is in charge.
//!
//! Used by the command line: `ebb check`, `ebb fix`. It reads no process and writes no file; texts and facts come in,
//! findings and edits go out. It knows nothing of trials and diagnoses.
//!
//! - [`check`]: the readers of each kind of file, and the rules: is the allocator really in charge?
//! - [`fix`]: the smallest change of such a file that puts an allocator in charge.

pub mod check;
pub mod fix;
