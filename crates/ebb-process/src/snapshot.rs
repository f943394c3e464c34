//! The facts of one look at running processes: the kernel's figures, the heap's, the cgroup's.
//!
//! This is the layout of the file that `ebb snap` writes and of the facts in `ebb why --json`
//! (`docs/json.md` explains the fields that need it). It holds counts, never contents of memory. A value
//! that could not be read is absent, and [`Missing`] says why; it is never 0. Bytes everywhere.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use ebb_inspect::cpython::{Collector, Interpreter, OfType};
pub use ebb_inspect::{Class, Heap, HugePages};

/// The layout's version: grows when a field changes its meaning.
pub const FORMAT: u32 = 1;
/// The largest figure that is read: 1 PiB.
const MOST: u64 = 1 << 50;

/// One look at a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of `ebb` that looked.
    pub ebb_version: String,
    /// When, as RFC 3339 in UTC.
    pub taken: String,
    /// Seconds of the monotonic clock at that moment, which tell how far two looks are apart.
    pub at_s: f64,
    /// The point of the program's life that it marks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What was looked at.
    pub target: Target,
    /// The processes that could be read, each root in front of its descendants.
    pub processes: Vec<Process>,
    /// The requested cgroup, else that of the first process.
    pub cgroup: Option<Cgroup>,
    /// What could not be read, and why.
    pub missing: Vec<Missing>,
}

/// A requested target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The target as typed.
    pub asked: String,
    /// Kind of target.
    pub kind: TargetKind,
}

/// The ways to name processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// A process by its number.
    Pid,
    /// Processes by their name.
    Name,
    /// All processes of a cgroup, which may be that of a unit or container.
    Cgroup,
    /// A command that was started for this.
    Command,
}

/// What is missing where a process ended while it was read.
pub const ENDED: &str = "process";

/// Something that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The process that it is about.
    pub pid: Option<i32>,
    /// What is missing, as a noun.
    pub what: String,
    /// The reason.
    pub why: String,
    /// What would help, where something would.
    pub remedy: Option<String>,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Pid of its parent.
    pub parent: i32,
    /// The kernel's name of it.
    pub name: String,
    /// The file that it executes.
    pub program: Option<String>,
    /// When it started, in clock ticks since boot: tells it from a later one of the same number.
    pub started_ticks: u64,
    /// Seconds since it started.
    #[serde(default)]
    pub age_s: Option<f64>,
    /// Threads.
    pub threads: u64,
    /// From `status`, which needs no right.
    pub status: Status,
    /// Its mappings by kind, from one reading of `smaps`.
    pub memory: Option<BTreeMap<Kind, Usage>>,
    /// Resident anonymous pages that no other process has: what it costs besides what is shared.
    #[serde(default)]
    pub private: Option<u64>,
    /// What is in charge of its `malloc`.
    pub allocator: Allocator,
    /// The language runtime, if it has a heap of its own besides `malloc`.
    pub runtime: Option<Runtime>,
    /// A library that has a pool of its own besides `malloc`, unless it is configured not to or is known not to use it.
    #[serde(default)]
    pub pool: Option<Pool>,
    /// Other allocators in the process whose memory was not read.
    #[serde(default)]
    pub hidden: Vec<Hidden>,
    /// What the allocator holds.
    pub heap: Option<Heap>,
    /// What CPython's object arenas hold, where there are such and they were read.
    pub objects: Option<Objects>,
    /// What CPython says of its objects, where it was read.
    #[serde(default)]
    pub python: Option<Python>,
    /// What a Java virtual machine says of its heap, where its counters were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<Managed>,
    /// What is live by stack, where the process samples its allocations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Stacks>,
    /// The work that it has done since it started.
    pub work: Work,
}

/// Live blocks by the functions that allocated them, estimated from samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stacks {
    /// Mean bytes between samples.
    pub interval: u64,
    /// Names of functions.
    pub functions: Vec<String>,
    /// Bytes, blocks, and places in `functions`, the innermost first.
    pub stacks: Vec<(f64, f64, Vec<usize>)>,
}

/// The kernel's own sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Resident memory.
    pub rss: Option<u64>,
    /// Anonymous part of `rss`: heap, stacks, private data.
    pub anon: Option<u64>,
    /// Pages of files in `rss`.
    pub file: Option<u64>,
    /// Shared memory in `rss`.
    pub shared: Option<u64>,
    /// Anonymous memory that is in swap.
    pub swap: Option<u64>,
    /// Page tables.
    pub page_tables: Option<u64>,
    /// The most that was ever resident.
    pub peak: Option<u64>,
}

/// What a mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The break heap (`[heap]`), which an allocator grows.
    Brk,
    /// Anonymous memory that the C library has given its name to (`glibc.mem.decorate_maps`).
    Malloc,
    /// Other private anonymous memory.
    Anonymous,
    /// Stacks of threads.
    Stack,
    /// Private copies of pages of files: data and relocations of programs and libraries.
    Data,
    /// Pages of files that the page cache has as well.
    File,
    /// Shared memory: tmpfs, memfd, System V, shared anonymous.
    Shared,
    /// Huge pages of hugetlbfs, which RSS does not count.
    Hugetlb,
    /// What the kernel maps itself.
    Special,
}

/// What mappings of one kind use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// How many there are.
    pub mappings: u64,
    /// Address space.
    pub size: u64,
    /// Resident.
    pub rss: u64,
    /// Resident, a page shared by n processes counted as 1/n.
    pub pss: u64,
    /// Resident and in no file.
    pub anon: u64,
    /// In swap, shared pages by their part.
    pub swap: u64,
    /// Resident in transparent huge pages.
    pub huge: u64,
}

/// What is in charge of `malloc`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocator {
    /// `glibc`, `musl`, `ebbmalloc`, `jemalloc`, `mimalloc`, `tcmalloc`, or the file's name; absent where it
    /// is not known.
    pub name: Option<String>,
    /// The file that it comes from.
    pub file: Option<String>,
}

/// An allocator in a file that a process has mapped, and that is not in charge of its `malloc`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden {
    /// Its name; absent where the file could not be searched for one.
    pub name: Option<String>,
    /// The file.
    pub file: String,
    /// Why its memory was not read.
    pub why: String,
}

/// Libraries that take their memory from a pool of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pool {
    /// Apache Arrow, as in pyarrow: mimalloc or jemalloc, built in.
    Arrow,
}

impl Pool {
    /// The call that returns its free pages, and the setting that replaces it.
    pub fn remedy(self) -> &'static str {
        match self {
            Pool::Arrow => {
                "pyarrow.default_memory_pool().release_unused(): returns Arrow's free pages once; with \
                 ARROW_DEFAULT_MEMORY_POOL=system and a restart its buffers come from malloc"
            }
        }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Pool::Arrow => "Arrow's own pool",
        })
    }
}

/// Language runtimes with a heap of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// CPython: small objects lie in arenas that do not come from `malloc`.
    Cpython,
    /// node and others on V8.
    V8,
    /// A Java virtual machine.
    Jvm,
    /// Go.
    Go,
    /// Ruby: objects lie in pages of their own, strings and arrays in `malloc`.
    Ruby,
}

/// What a runtime says of its own heap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Managed {
    /// Who says so: `Java 17.0.1`, `V8`.
    pub reader: String,
    /// Bytes that the heap may use without asking the kernel; not all of them are resident.
    pub committed: u64,
    /// Bytes of objects: Java's after the last collection, V8's with garbage.
    pub used: u64,
}

/// The arenas in which CPython puts objects up to 512 bytes; resident bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objects {
    /// Who says so: `CPython 3.11`.
    pub reader: String,
    /// Resident bytes of the arenas.
    pub resident: u64,
    /// Resident bytes in live objects.
    pub live: u64,
    /// Arenas.
    pub arenas: u64,
}

/// CPython's interpreters and what they have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// Who says so: `CPython 3.14`.
    pub reader: String,
    /// The interpreters of the process, the newest first; the main one has the number 0.
    pub interpreters: Vec<Interpreter>,
    /// Objects that the collectors track, by type, the most bytes first; the first hundred types.
    pub types: Vec<OfType>,
    /// Live blocks of 1 MiB or more, by what they are to Python; absent where it is not known which there are.
    pub buffers: Option<Vec<OfType>>,
}

/// Work done since the start; a growth is set against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// CPU time in seconds, user and system.
    pub cpu_s: f64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Bytes read and written by system calls, where that may be read.
    pub io_bytes: Option<u64>,
}

/// A cgroup with a memory controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Version of the cgroup hierarchy: 1 or 2.
    pub version: u8,
    /// Its path below the hierarchy's mount.
    pub path: String,
    /// All that is charged to it, descendants included.
    pub usage: Option<u64>,
    /// The lowest limit that holds here, its own or an ancestor's; absent where there is none.
    pub limit: Option<u64>,
    /// The path of the cgroup that the limit is of.
    pub limit_of: Option<String>,
    /// All that is charged to that cgroup: what the limit is compared with.
    #[serde(default)]
    pub limit_usage: Option<u64>,
    /// Above this the kernel reclaims and slows down (v2's `memory.high`).
    pub high: Option<u64>,
    /// The most that was ever charged.
    pub peak: Option<u64>,
    /// In swap.
    pub swap: Option<u64>,
    /// What is charged, by kind.
    pub parts: CgroupParts,
    /// What is in the way: failures at the limit, kills, pressure, CPU throttling.
    pub stress: Stress,
    /// Processes in it and below.
    pub pids: Vec<i32>,
    /// Sum over those of them that are no part of the target: anonymous memory; absent where one of
    /// them could not be read.
    pub others_anon: Option<u64>,
}

/// What is charged to a cgroup, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupParts {
    /// Anonymous memory.
    pub anon: Option<u64>,
    /// Page cache, shared memory included.
    pub file: Option<u64>,
    /// Of `file`: mapped by some process.
    pub mapped: Option<u64>,
    /// Of `file`: tmpfs and shared memory, which reclaim cannot drop.
    pub shared: Option<u64>,
    /// Of `file`: not used lately; goes first, and an autoscaler subtracts it.
    pub inactive_file: Option<u64>,
    /// Of `file`: used lately.
    pub active_file: Option<u64>,
    /// Kernel memory of all kinds, where the kernel gives only the sum (v1).
    pub kernel: Option<u64>,
    /// Kernel objects.
    pub slab: Option<u64>,
    /// Of `slab`: goes under pressure.
    pub slab_reclaimable: Option<u64>,
    /// Page tables.
    pub page_tables: Option<u64>,
    /// Stacks of threads inside the kernel.
    pub kernel_stack: Option<u64>,
    /// Network buffers.
    pub sockets: Option<u64>,
}

/// Signs of a lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stress {
    /// Times that a limit was hit.
    pub limit_hits: Option<u64>,
    /// Processes that the kernel killed for memory.
    pub oom_kills: Option<u64>,
    /// Periods in which the CPU quota was used up.
    pub throttled_periods: Option<u64>,
    /// Seconds in which it was waited for.
    pub throttled_s: Option<f64>,
    /// Part of the last minute in which some task waited for memory, in per cent.
    pub memory_some_60: Option<f64>,
    /// Part of the last minute in which all did.
    pub memory_full_60: Option<f64>,
}

impl Snapshot {
    /// Reads the file of `ebb snap`. Bytes and counts that no machine has are an error, so that sums of them fit.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        match largest(&value) {
            most if most > MOST => Err(Error::custom(format!("no machine has {most} bytes"))),
            _ => serde_json::from_value(value),
        }
    }

    /// The sum of a figure over the processes; absent where one of them lacks it.
    pub fn total(&self, figure: impl Fn(&Process) -> Option<u64>) -> Option<u64> {
        self.processes.iter().map(figure).sum()
    }

    /// The language runtime of the first process that has one.
    pub fn runtime(&self) -> Option<Runtime> {
        self.processes.iter().find_map(|process| process.runtime)
    }

    /// The pool of the first process that has one that was not read.
    pub fn pool(&self) -> Option<Pool> {
        let processes = self.processes.iter();
        let mut unread = processes.filter(|process| !process.pool_is_read());
        unread.find_map(|process| process.pool)
    }
}

/// The largest whole number in it.
fn largest(value: &Value) -> u64 {
    match value {
        Value::Number(number) => number.as_u64().unwrap_or(0),
        Value::Array(values) => values.iter().map(largest).max().unwrap_or(0),
        Value::Object(fields) => fields.values().map(largest).max().unwrap_or(0),
        _ => 0,
    }
}

impl Process {
    /// Whether the memory of the pool that it has is part of its heap.
    pub fn pool_is_read(&self) -> bool {
        let heap = self.heap.as_ref();
        heap.is_some_and(|heap| heap.reader.contains(" in libarrow.so"))
    }

    /// What one kind of mapping uses, if the mappings were read.
    pub fn usage(&self, kind: Kind) -> Option<Usage> {
        let memory = self.memory.as_ref()?;
        Some(memory.get(&kind).copied().unwrap_or_default())
    }
}

impl Usage {
    /// Adds another's figures.
    pub fn add(&mut self, other: Usage) {
        self.mappings += other.mappings;
        self.size += other.size;
        self.rss += other.rss;
        self.pss += other.pss;
        self.anon += other.anon;
        self.swap += other.swap;
        self.huge += other.huge;
    }
}
