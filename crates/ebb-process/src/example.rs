//! A made-up look at processes, for the tests of what reads one.

use crate::snapshot::{self, Process, Snapshot, Target, TargetKind};

/// A look at these processes, outside of any cgroup, at which nothing was missing.
pub fn snapshot(processes: Vec<Process>) -> Snapshot {
    Snapshot {
        format: snapshot::FORMAT,
        ebb_version: "0".into(),
        taken: "2026-01-02T03:04:05Z".into(),
        at_s: 0.0,
        label: None,
        target: Target { asked: "7".into(), kind: TargetKind::Pid },
        processes,
        cgroup: None,
        missing: Vec::new(),
    }
}
