//! What Kubernetes' autoscalers would have done with a recorded service.

use serde::{Deserialize, Serialize};

/// The memory that an autoscaler aims at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A part of the request (`averageUtilization`).
    Utilization(f64),
    /// Bytes of one replica (`averageValue`).
    Bytes(u64),
}

/// An autoscaler of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// What it aims at.
    pub target: Target,
    /// Requested memory of one replica; without it the limit is the request, as in Kubernetes.
    pub request: Option<u64>,
    /// Replicas at least.
    pub min: u32,
    /// Replicas at most.
    pub max: u32,
}

/// What would have happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Bytes that one replica is to have.
    pub target: u64,
    /// Replicas, the mean over the time.
    pub replicas: f64,
    /// The most replicas.
    pub most: u32,
    /// Replicas that were started to have more.
    pub started: u32,
    /// From when on there were so many, in seconds since the beginning.
    pub changes: Vec<Scaled>,
    /// What a vertical autoscaler would have requested.
    pub vertical: Vertical,
}

/// A change of the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaled {
    /// Seconds since the beginning.
    pub at_s: f64,
    /// Replicas from then on.
    pub replicas: u32,
}

/// The recommendation of a vertical autoscaler at the end, and how it came there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vertical {
    /// The recommended request.
    pub request: u64,
    /// A smaller request is raised.
    pub lower: u64,
    /// A larger request is lowered.
    pub upper: u64,
    /// Replicas that were restarted to get another request.
    pub restarts: u32,
}

/// The memory of all replicas at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// Seconds since the first look.
    pub at_s: f64,
    /// Each replica: what tells it from others, its memory, kills for memory so far.
    pub replicas: Vec<Seen>,
}

/// One replica in a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What tells it from others.
    pub life: (i32, u64),
    /// Its memory.
    pub bytes: u64,
    /// Processes that were killed for memory in its cgroup, ever.
    pub oom_kills: u64,
}
