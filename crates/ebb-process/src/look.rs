//! How long `ebb` looks at processes.

use std::time::{Duration, Instant};

use ebb_inspect::{LOOK_WITHIN, Target, Unreadable};

/// How long the heaps of all processes of a look may take. Later ones are reported from the kernel's figures only: a pool of 50 workers
/// with five million blocks each takes as long.
pub const ALL_WITHIN: Duration = Duration::from_secs(60);

/// Opens process `pid` for a reader, which has [`LOOK_WITHIN`] from here on.
pub(super) fn open(pid: i32) -> Result<Target, Unreadable> {
    Ok(Target::open(pid)?.until(Instant::now() + LOOK_WITHIN))
}
