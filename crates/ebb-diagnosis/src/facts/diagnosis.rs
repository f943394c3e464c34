//! What is concluded from a snapshot: the ledger, the causes, the verdict.
//!
//! `verdict` makes it, `report` shows it, `commands` turns its kind into an exit code. Also the layout
//! of `ebb why --json`.

use serde::{Deserialize, Serialize};

use super::workers::Pool;
use ebb_process::snapshot::Snapshot;

/// The answer of `ebb why`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The verdict in short.
    pub verdict: Verdict,
    /// Where the memory of the processes is.
    pub ledger: Ledger,
    /// From the processes' memory to the cgroup's.
    pub bridge: Option<Bridge>,
    /// Every cause that was checked; the causes that apply come first.
    pub findings: Vec<Finding>,
    /// Workers with one parent and program, side by side.
    #[serde(default)]
    pub workers: Vec<Pool>,
    /// What it is concluded from.
    pub snapshot: Snapshot,
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Kind of verdict.
    pub kind: VerdictKind,
    /// What explains the most of it, where one thing does.
    pub main: Option<Cause>,
    /// The result in one sentence.
    pub sentence: String,
    /// The command to type next.
    pub next: Option<String>,
}

/// The verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// Little memory, or all of it is in use: nothing that one look can complain about.
    InUse,
    /// The allocator holds memory that the program has freed.
    Retention,
    /// The live heap itself grows. Never from one look.
    LiveHeapGrows,
    /// Most of the memory is not heap.
    NotHeap,
    /// More than one of these.
    Mixed,
    /// What is known does not decide it.
    NotEnoughEvidence,
}

/// Where resident memory can be, and what holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Live blocks of malloc.
    Live,
    /// Free pages that malloc_trim returns.
    Trimmable,
    /// Free pages at the ends of secondary arenas.
    Tops,
    /// Free bytes on pages with live blocks.
    Pinned,
    /// Freed bytes in threads' caches.
    Cached,
    /// Free pages that an allocator other than glibc's keeps.
    Kept,
    /// Free pages that the kernel may take (MADV_FREE) and has not taken yet.
    Lazy,
    /// Free pages that are locked in memory.
    Locked,
    /// The allocator's bookkeeping.
    Metadata,
    /// Objects in CPython's arenas.
    Objects,
    /// Free memory in CPython's arenas.
    FreeObjects,
    /// The memory of an allocator that is recognised but not read.
    UnreadHeap,
    /// A language runtime's own heap, or other memory that the program mapped itself.
    Anonymous,
    /// Stacks of threads.
    Stacks,
    /// Private data of programs and libraries.
    Data,
    /// Files that are mapped.
    MappedFiles,
    /// tmpfs, memfd, System V and shared anonymous memory.
    SharedMemory,
    /// The kernel's mappings.
    Special,
    /// Page cache that no process maps (of the cgroup).
    PageCache,
    /// Files on tmpfs that no process maps (of the cgroup).
    Tmpfs,
    /// Kernel memory (of the cgroup).
    Kernel,
    /// Anonymous memory in swap.
    Swap,
}

/// The sums over the target's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Proportional resident memory, from `smaps`; where that is closed, RSS.
    pub total: u64,
    /// Whether `total` is PSS.
    pub proportional: bool,
    /// The lines; with `remainder` they add up to `total`.
    pub lines: Vec<Line>,
    /// What no line explains: what changed between two readings, and shares of forked pages.
    pub remainder: i64,
}

/// A line of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The cause.
    pub cause: Cause,
    /// Bytes.
    pub bytes: u64,
    /// What it is made of, in words.
    pub note: Option<String>,
}

/// From the processes to the cgroup: anonymous memory of both, and what lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bridge {
    /// Anonymous memory of the target's processes.
    pub target_anon: u64,
    /// Anonymous memory of other processes in the cgroup.
    pub others_anon: u64,
    /// What the cgroup is charged for anonymous memory.
    pub cgroup_anon: u64,
    /// `cgroup_anon` less both: charges that the kernel keeps per processor, pages of processes that
    /// moved here or ended, and what changed between two readings.
    pub remainder: i64,
    /// What an autoscaler sees: usage less inactive file.
    pub working_set: Option<u64>,
    /// The part of that which another allocator or a trim can change; absent where a heap was not read.
    pub returnable: Option<u64>,
}

/// One cause with its figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// Whether it applies.
    pub weight: Weight,
    /// Bytes, where known.
    pub bytes: Option<u64>,
    /// The figure in words.
    pub evidence: String,
    /// How wrong it can be.
    pub error: Option<String>,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// How much a cause explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// The most of it.
    Main,
    /// A part worth looking at.
    Part,
    /// Not known.
    Unknown,
    /// No.
    RuledOut,
}
