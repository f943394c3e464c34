//! What a trial says besides its verdict: settings without effect, and what no allocator changes.

use serde::{Deserialize, Serialize};

/// Free memory of glibc's malloc in all processes of a service, in resident bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeMemory {
    /// At the tops of arenas: the only place where its automatic trim looks.
    pub top_bytes: u64,
    /// Between live blocks.
    pub inside_bytes: u64,
    /// A top larger than this is returned: that of the process with most free memory.
    pub trim_threshold_bytes: Option<u64>,
    pub arenas: Option<u64>,
}

/// Settings of glibc's malloc that make no real difference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placebos {
    /// The variants with these settings.
    pub variants: Vec<String>,
    /// The variant without settings.
    pub of: String,
    /// Its free memory at the end: the run with the median of the tops.
    pub free: Option<FreeMemory>,
    pub sentence: String,
}

/// What remains whatever the allocator, and the limit that would be enough.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    /// The highest live heap, by the counters of [`live_peak_of`](Self::live_peak_of).
    pub live_peak_bytes: Option<u64>,
    pub live_peak_of: Option<String>,
    /// The limit that applied.
    pub limit_bytes: Option<u64>,
    /// The variant that the lower limit is for: the recommended one, else the first.
    pub variant: String,
    /// Its highest peak.
    pub peak_bytes: u64,
    pub margin_bytes: u64,
    /// Peak and margin.
    pub enough_bytes: u64,
    pub sentence: String,
}
