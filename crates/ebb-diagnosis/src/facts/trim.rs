//! What `ebb trim` foresaw, did and measured. The layout of its `--json` (`docs/json.md`). Bytes and seconds.

use serde::Serialize;

use ebb_process::snapshot::Target;

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trim {
    /// The requested target.
    pub target: Target,
    /// When, as RFC 3339 in UTC.
    pub taken: String,
    /// Each process that could be read.
    pub processes: Vec<ProcessTrim>,
    /// Result of --page-cache, if it was requested.
    pub page_cache: Option<PageCache>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessTrim {
    /// Its number.
    pub pid: i32,
    /// The kernel's name of it.
    pub name: String,
    /// What is in charge of its `malloc`, where that is known.
    pub allocator: Option<String>,
    /// Forecast of malloc_trim, if there is one.
    pub predicted: Option<Prediction>,
    /// What was done.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The outcome.
    pub measured: Option<Measured>,
}

/// What malloc_trim would do in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// Resident bytes that would be returned.
    pub returns: u64,
    /// Free bytes that would stay: at the ends of secondary arenas.
    pub tops: u64,
    /// Free bytes that would stay: on pages with live blocks.
    pub pinned: u64,
    /// How long the thread that does it would be kept from its work; absent where it could not be measured what
    /// returning memory costs.
    pub pause_s: Option<f64>,
}

/// What returning memory costs on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Seconds for a system call, without its pages.
    pub call_s: f64,
    /// Seconds for a page.
    pub page_s: f64,
    /// Bytes of a page.
    pub page_bytes: u64,
}

/// What was done in a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// malloc_trim was called.
    Trimmed(Call),
    /// Nothing.
    Left(Left),
}

/// A call of malloc_trim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    /// How.
    pub route: Route,
    /// The thread that made it, or that was asked to have it made.
    pub thread: i32,
    /// How long that thread stood still before. No other did; absent where none did.
    pub stopped_s: Option<f64>,
    /// How long it took until the thread that was asked came by; absent where none was asked.
    pub waited_s: Option<f64>,
    /// How long it was in malloc_trim; absent where it had not come back when we stopped looking.
    pub ran_s: Option<f64>,
    /// Threads that were tried.
    pub attempts: u32,
}

/// The ways in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// ptrace, and a frame on a thread's stack.
    Inject,
    /// CPython's own remote execution of a script.
    RemoteExec,
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Left {
    /// Kind of reason.
    pub reason: Reason,
    /// The reason in one sentence.
    pub why: String,
    /// What to do instead.
    pub remedy: Option<String>,
}

/// Reasons to do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The trim would return too little.
    BelowThreshold,
    /// The allocator does it without us.
    ReturnsByItself,
    /// `--inject` was not given, or `--dry-run` was.
    NotAsked,
    /// The allocator has nothing of the kind.
    CannotTrim,
    /// It would take longer than is allowed.
    TooLong,
    /// Its heap was not read.
    NotRead,
    /// A right is missing.
    NoRight,
    /// It is in a state in which nothing may be called.
    Unfit,
    /// No thread of it came to a safe place in time.
    NoPlace,
    /// It ended.
    Gone,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Measured {
    /// Resident memory of the process before.
    pub rss_before: u64,
    /// Resident memory after.
    pub rss_after: u64,
    /// Resident memory of its heap before.
    pub heap_before: u64,
    /// And after, where it could be read again.
    pub heap_after: Option<u64>,
    /// What malloc_trim would return now.
    pub left: Option<u64>,
}

impl Measured {
    /// Returned bytes, by the process's resident memory: negative if it grew meanwhile.
    pub fn returned(&self) -> i64 {
        self.rss_before as i64 - self.rss_after as i64
    }
}

/// Page cache of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageCache {
    /// The cgroup's path.
    pub cgroup: String,
    /// Droppable file pages before.
    pub before: Option<u64>,
    /// Droppable file pages after, if the kernel was asked.
    pub after: Option<u64>,
    /// Anonymous memory before; none of it may be dropped.
    pub anon_before: Option<u64>,
    /// Anonymous memory after, if the kernel was asked.
    pub anon_after: Option<u64>,
    /// Why the kernel was not asked.
    pub refused: Option<Left>,
}
