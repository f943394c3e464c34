//! What to type next, from the verdict of one look.
//!
//! Used by `conclude`.

use std::collections::BTreeSet;

use crate::facts::diagnosis::{Cause, VerdictKind};
use crate::facts::snapshot::Snapshot;

/// The step that follows from a verdict.
pub(super) fn next(kind: VerdictKind, main: Option<Cause>, snapshot: &Snapshot) -> Option<String> {
    let asked = &snapshot.target.asked;
    match kind {
        // What malloc_trim returns comes back without a restart; what the reason is, a trial shows.
        VerdictKind::Retention | VerdictKind::Mixed
            if main == Some(Cause::Trimmable) && is_glibc(snapshot) =>
        {
            Some(format!(
                "ebb trim {asked}: what malloc_trim would return, and with --inject it does; then ebb compare: which allocator \
                 does so by itself"
            ))
        }
        VerdictKind::Retention | VerdictKind::Mixed => {
            Some(
                "ebb compare WORKLOAD -o DIR: which allocator gives it back under your own load (docs/workload.md); \
                 then ebb fix FILE --from DIR/results.json writes it (docs/fix.md)"
                    .to_owned(),
            )
        }
        VerdictKind::InUse | VerdictKind::LiveHeapGrows => {
            Some(format!("ebb why --watch 10m {asked}"))
        }
        VerdictKind::NotEnoughEvidence => {
            Some(gates(snapshot).unwrap_or_else(|| format!("ebb why --watch 10m {asked}")))
        }
        VerdictKind::NotHeap => {
            let first = snapshot.processes.first()?;
            let pid = first.pid;
            Some(match main? {
                Cause::Stacks => format!("ls /proc/{pid}/task | wc -l"),
                Cause::SharedMemory => {
                    format!("grep -E 'memfd|/dev/shm|SYSV|zero' /proc/{pid}/maps")
                }
                Cause::Tmpfs => "df -h -t tmpfs".to_owned(),
                Cause::Kernel => "slabtop -o -s c".to_owned(),
                Cause::PageCache | Cause::MappedFiles => format!("ebb snap {asked} -o before.json"),
                _ => format!("ebb why --watch 10m {asked}"),
            })
        }
    }
}

/// What opens what could not be read: each gate once, with the processes behind it where there is more than one gate.
fn gates(snapshot: &Snapshot) -> Option<String> {
    let mut gates: Vec<(&str, BTreeSet<i32>)> = Vec::new();
    for missing in &snapshot.missing {
        let Some(remedy) = missing.remedy.as_deref() else {
            continue;
        };
        match gates.iter_mut().find(|(known, _)| *known == remedy) {
            Some((_, pids)) => pids.extend(missing.pid),
            None => gates.push((remedy, missing.pid.into_iter().collect())),
        }
    }
    let of = |pids: &BTreeSet<i32>| {
        let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
        match pids.is_empty() {
            true => String::new(),
            false => format!("{}: ", pids.join(", ")),
        }
    };
    match gates.as_slice() {
        [] => None,
        [(remedy, _)] => Some((*remedy).to_owned()),
        several => {
            let each = several.iter().map(|(remedy, pids)| of(pids) + remedy);
            Some(each.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Whether a process of it is on glibc's malloc.
fn is_glibc(snapshot: &Snapshot) -> bool {
    snapshot
        .processes
        .iter()
        .any(|process| process.allocator.name.as_deref() == Some("glibc"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::snapshot::Missing;

    #[test]
    fn each_gate_is_named_once_with_the_processes_behind_it() {
        let missing = |pid, remedy: Option<&str>| Missing {
            pid: Some(pid),
            what: "the heap".to_owned(),
            why: "closed".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let of = |missing: Vec<Missing>| {
            gates(&Snapshot {
                missing,
                ..crate::facts::example::snapshot(Vec::new())
            })
        };
        assert_eq!(of(vec![missing(1, None)]), None);
        let one = vec![missing(1, Some("Open it.")), missing(2, Some("Open it."))];
        assert_eq!(of(one.clone()).as_deref(), Some("Open it."));
        let other = vec![missing(7, Some("Another.")), missing(1, Some("Open it."))];
        assert_eq!(
            of([one, other].concat()).as_deref(),
            Some("1, 2: Open it. 7: Another.")
        );
    }
}
