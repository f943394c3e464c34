//! What surrounds a run from outside: the limits that it is held to, and the kernel's count of what they
//! did.
//!
//! Used by `run`. The cgroups themselves are made and read elsewhere; `commands/compare` supplies them.

use std::path::PathBuf;

/// Makes a place with the trial's limits for each run.
pub trait Enclosures: Send + Sync {
    /// A new one; dropped it is taken away. The message says why there is none.
    fn enclose(&self, name: &str) -> Result<Box<dyn Enclosure>, String>;
}

/// A place with limits.
pub trait Enclosure {
    /// The files that a process writes `0` into to enter; what it starts is inside as well.
    fn doors(&self) -> Vec<PathBuf>;
}

/// The place that a process is in, limited by the trial or by somebody else; it outlives the process.
pub trait Surroundings: Send + Sync {
    /// Processes that were killed there for lack of memory, ever.
    fn oom_kills(&self) -> Option<u64>;
    /// Time for which CPU quotas there held processes back, ever; `None` where there is no quota.
    fn throttled_s(&self) -> Option<f64>;
    /// The lowest memory limit that counts there.
    fn limit_bytes(&self) -> Option<u64>;
}
