//! jemalloc's C names, for objects that export them. The feature `c-names` has them.
//!
//! Each function decodes C's arguments, calls this crate, and encodes the result.

mod mallctl;
mod mallocx;

pub use mallctl::{WriteStatistics, mallctl, mallctlbymib, mallctlnametomib, malloc_stats_print};
pub use mallocx::{dallocx, je_get_defrag_hint, mallocx, nallocx, rallocx, sallocx, sdallocx, xallocx};
