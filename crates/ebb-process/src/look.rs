//! How much `ebb` reads of a process, and how long it looks.

use std::time::{Duration, Instant};

use ebb_inspect::{LOOK_WITHIN, Target, Unreadable};

/// How long the heaps of all processes of a look may take. Later ones are reported from the kernel's figures only: a pool of 50 workers
/// with five million blocks each takes as long.
pub const ALL_WITHIN: Duration = Duration::from_secs(60);

/// How much to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The kernel's figures only: cheap.
    Kernel,
    /// The heaps as well.
    Heaps,
    /// And the objects of CPython one by one, which takes seconds where there are many.
    Objects,
    /// The same, and where an allocator is about to return pages by itself, after it has done so.
    Settled,
}

/// Opens process `pid` for a reader, which has [`LOOK_WITHIN`] from here on.
pub(super) fn open(pid: i32) -> Result<Target, Unreadable> {
    Ok(Target::open(pid)?.until(Instant::now() + LOOK_WITHIN))
}
