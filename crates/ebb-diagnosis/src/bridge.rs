//! The bridge between the processes' memory and the cgroup's.

use super::ledger::{has_all_heaps, scaled};
use crate::facts::diagnosis::{Bridge, Cause, Ledger};
use ebb_process::snapshot::{Cgroup, Process, Snapshot, TargetKind};

/// From the processes to the cgroup; absent where a figure is.
pub fn of(snapshot: &Snapshot, ledger: &Ledger) -> Option<Bridge> {
    let cgroup = snapshot.cgroup.as_ref()?;
    let target = snapshot.processes.iter().filter(|process| cgroup.pids.contains(&process.pid));
    let target_anon = target.map(anonymous).sum::<Option<u64>>()?;
    let (others_anon, cgroup_anon) = (cgroup.others_anon?, cgroup.parts.anon?);
    Some(Bridge {
        target_anon,
        others_anon,
        cgroup_anon,
        remainder: cgroup_anon as i64 - target_anon as i64 - others_anon as i64,
        working_set: working_set(cgroup),
        // Free pages, and what caches hold of them; pinned bytes are nobody's to return.
        returnable: has_all_heaps(snapshot).then(|| {
            let causes = [Cause::Trimmable, Cause::Tops, Cause::Cached, Cause::Kept, Cause::Lazy];
            causes.map(|cause| ledger.bytes(cause)).iter().sum()
        }),
    })
}

/// Anonymous memory by shares where that is known, so that forked workers' pages count once.
fn anonymous(process: &Process) -> Option<u64> {
    let Some(memory) = &process.memory else {
        return process.status.anon;
    };
    // A kind's anonymous pages are shared as its pages are.
    let resident = memory.values().filter(|usage| usage.rss > 0);
    Some(resident.map(|usage| scaled(usage.anon, usage.pss, usage.rss)).sum())
}

/// What Kubernetes and the autoscalers on top of it compare with the limit.
pub fn working_set(cgroup: &Cgroup) -> Option<u64> {
    Some(cgroup.usage?.saturating_sub(cgroup.parts.inactive_file?))
}

/// Whether the target is all that lives in the cgroup, so that what is charged to it is the target's.
pub fn owns_cgroup(snapshot: &Snapshot) -> bool {
    let Some(cgroup) = &snapshot.cgroup else {
        return false;
    };
    let is_ours = |pid: &i32| snapshot.processes.iter().any(|process| process.pid == *pid);
    let is_asked = snapshot.target.kind == TargetKind::Cgroup;
    cgroup.path != "/" && (is_asked || (!cgroup.pids.is_empty() && cgroup.pids.iter().all(is_ours)))
}
