//! One record of a target: what the kernel says of its processes at one time. Counts and sizes only.
//!
//! `ebb snap --to` writes one line of JSON for each, `ebb diff` reads them; docs/json.md has the fields. A figure that could not be
//! read is absent, never 0. Bytes everywhere.

use jiff::Timestamp;
use procfs::process::Process;
use serde::{Deserialize, Serialize};

use super::cgroup::Place;
use super::tree::{self, Tree};

/// The layout's version: grows when a field changes its meaning.
pub const FORMAT: u32 = 1;

/// One look at a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// When.
    pub at: Timestamp,
    /// Seconds to the next record, as planned.
    pub every_s: f64,
    /// The target as typed.
    pub target: String,
    /// What stood for it; empty while it was gone.
    pub replicas: Vec<Replica>,
}

/// A process with its descendants, or all processes of a cgroup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replica {
    /// Its first process.
    pub pid: i32,
    /// When that started, in clock ticks since boot: tells it from a later one of the same number.
    pub started: u64,
    /// Processes.
    pub processes: u64,
    /// Resident memory, the sum over the processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss: Option<u64>,
    /// Anonymous part of `rss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anon: Option<u64>,
    /// In swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<u64>,
    /// What serves the `malloc` of its first process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocator: Option<String>,
    /// The memory cgroup of its first process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Group>,
}

/// A memory cgroup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its path below the hierarchy's mount.
    pub path: String,
    /// Processes in it that are no part of the replica: its figures are not the replica's then.
    pub others: u64,
    /// All that is charged to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<u64>,
    /// The part of `usage` in files that were not used lately: goes first, and autoscalers subtract it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactive_file: Option<u64>,
    /// The lowest limit up to the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// All that is charged to the cgroup that has this limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_usage: Option<u64>,
    /// Processes that the kernel killed here for memory, ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
}

impl Record {
    /// When, in seconds since 1970.
    pub fn at_s(&self) -> f64 {
        self.at.as_millisecond() as f64 / 1e3
    }
}

impl Replica {
    /// What tells it from others: its first process, and when that started.
    pub fn life(&self) -> (i32, u64) {
        (self.pid, self.started)
    }

    /// Reads it now; `None` where its first process is gone. `allocator` names what serves the `malloc` of a process.
    pub fn read(tree: &Tree, place: Option<&Place>, allocator: impl FnOnce(i32) -> Option<String>) -> Option<Self> {
        // Of a cgroup the oldest process is the first.
        let identities = tree.pids().iter().filter_map(|&pid| Some((tree::identity(pid)?.0, pid)));
        let (started, pid) = match place {
            Some(_) => identities.min()?,
            None => identities.take(1).find(|(_, pid)| Some(pid) == tree.pids().first())?,
        };
        let statuses: Vec<_> = tree
            .pids()
            .iter()
            .filter_map(|&pid| Process::new(tree::shown_by(pid)?).and_then(|it| it.status()).ok())
            .filter(|status| status.vmrss.is_some())
            .collect();
        let sum = |figure: fn(&procfs::process::Status) -> Option<u64>| -> Option<u64> {
            statuses.iter().map(|status| Some(figure(status)? * 1024)).sum()
        };
        let place = place.cloned().or_else(|| Place::of(pid));
        Some(Self {
            pid,
            started,
            processes: statuses.len() as u64,
            rss: sum(|status| status.vmrss),
            anon: sum(|status| status.rssanon),
            swap: sum(|status| status.vmswap),
            allocator: allocator(pid),
            cgroup: place.map(|place| {
                let cgroup = place.read();
                let is_other = |other: &&i32| !tree.pids().contains(other);
                Group {
                    others: cgroup.pids.iter().filter(is_other).count() as u64,
                    usage: cgroup.usage,
                    inactive_file: cgroup.parts.inactive_file,
                    limit: cgroup.limit,
                    limit_usage: cgroup.limit_usage,
                    oom_kills: cgroup.stress.oom_kills,
                    path: cgroup.path,
                }
            }),
        })
    }
}
