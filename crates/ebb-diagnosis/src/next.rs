//! What to type next, from the verdict of one look.
//!
//! Used by `verdict`.

use std::collections::BTreeSet;

use super::{ledger, settings};
use ebb_allocators::Allocator;

use crate::facts::diagnosis::{Cause, VerdictKind};
use ebb_process::heap::NO_HUGE_PAGES;
use ebb_process::snapshot::{Kind, Runtime, Snapshot, TargetKind};

/// The step that follows from a verdict: a command, then what it is for after a colon. It contains the remedy for the
/// main cause.
pub(super) fn next(kind: VerdictKind, main: Option<Cause>, snapshot: &Snapshot) -> Option<String> {
    match kind {
        VerdictKind::Retention | VerdictKind::Mixed => Some(give_back(main, snapshot)),
        VerdictKind::InUse | VerdictKind::LiveHeapGrows => {
            Some(format!("{}: whether it grows", watch(snapshot, "10m")))
        }
        VerdictKind::NotEnoughEvidence => Some(gates(snapshot).unwrap_or_else(|| match snapshot.runtime() {
            Some(Runtime::Cpython) if main == Some(Cause::Anonymous) => {
                "ebb run, and a restart: ebb can read CPython's objects on ebbmalloc".to_owned()
            }
            _ => format!("{}: whether it grows", watch(snapshot, "10m")),
        })),
        VerdictKind::NotHeap => {
            let pid = snapshot.processes.first()?.pid;
            let asked = quoted(snapshot);
            Some(match main? {
                Cause::Stacks => format!("ls /proc/{pid}/task | wc -l"),
                Cause::SharedMemory => shared(snapshot),
                Cause::Tmpfs => "df -h -t tmpfs".to_owned(),
                Cause::Kernel => "slabtop -o -s c".to_owned(),
                Cause::PageCache | Cause::MappedFiles => format!("ebb snap {asked} -o before.json"),
                Cause::Anonymous if has_v8(snapshot) => format!(
                    "node inspect -p {pid}, then HeapProfiler.collectGarbage(): collects, and returns the rest; it opens the \
                     inspector on 127.0.0.1:9229. --max-old-space-size limits the heap"
                ),
                Cause::Anonymous if can_shrink(snapshot) => format!(
                    "jcmd {pid} GC.run: collects once, after which G1, Shenandoah and ZGC return what they do not need; \
                     -Xmx limits the heap"
                ),
                _ => watch(snapshot, "10m"),
            })
        }
    }
}

/// Whether V8's heap was read: garbage in it is not known from outside, so that a collection is worth a try.
fn has_v8(snapshot: &Snapshot) -> bool {
    snapshot.runtime() == Some(Runtime::V8) && ledger::managed(&snapshot.processes).is_some()
}

/// Whether much of a Java heap is resident and was not in use after the last collection.
fn can_shrink(snapshot: &Snapshot) -> bool {
    let anonymous = snapshot.processes.iter().filter_map(|it| it.usage(Kind::Anonymous));
    let resident = anonymous.map(|usage| usage.pss).sum::<u64>();
    ledger::managed(&snapshot.processes).is_some_and(|(committed, used)| {
        let unused = committed.min(resident).saturating_sub(used);
        unused >= 16 << 20 && unused >= resident / 5
    })
}

/// How memory that was freed and is held comes back.
pub(super) fn give_back(main: Option<Cause>, snapshot: &Snapshot) -> String {
    let is_running = snapshot.target.kind != TargetKind::Command;
    if main == Some(Cause::Locked) {
        return format!(
            "grep VmLck /proc/{}/status: how much is locked; free pages can be returned after munlock or munlockall, \
             or without mlockall(MCL_FUTURE)",
            first_pid(snapshot)
        );
    }
    if let Some(cause) = main.filter(|&cause| settings::is_of_pool(cause, snapshot)) {
        // No preloaded allocator replaces the pool, so that a trial shows nothing.
        return settings::remedy(cause, snapshot).unwrap_or_default();
    }
    let variants = match main {
        // malloc_trim returns memory without a restart; a trial shows which allocator does not need it.
        Some(Cause::Trimmable) if is_glibc(snapshot) && is_running => {
            return format!(
                "ebb trim {} --inject: calls malloc_trim once; ebb compare WORKLOAD then shows which allocator \
                 returns it by itself",
                quoted(snapshot)
            );
        }
        Some(Cause::FreeObjects) => {
            if let Some(remedy) = settings::remedy(Cause::FreeObjects, snapshot) {
                return remedy;
            }
            "--variants glibc,ebbmalloc"
        }
        Some(cause) if settings::asks_for_huge_pages(cause, snapshot) => {
            &format!("--variants glibc,glibc+{NO_HUGE_PAGES},ebbmalloc")
        }
        Some(Cause::Tops) if is_glibc(snapshot) => "--variants glibc,glibc+MALLOC_TRIM_THRESHOLD_=131072,ebbmalloc",
        _ => "-o DIR",
    };
    let why = match main {
        Some(Cause::FreeObjects) => {
            "whether ebbmalloc returns the memory of CPython's objects, and at what cost".to_owned()
        }
        _ => main
            .and_then(|cause| settings::remedy(cause, snapshot))
            .unwrap_or_else(|| "which allocator returns it under your load".to_owned()),
    };
    format!("ebb compare WORKLOAD {variants}: {why} (docs/workload.md)")
}

/// A look over so long.
pub(super) fn watch(snapshot: &Snapshot, time: &str) -> String {
    match snapshot.target.kind {
        TargetKind::Command => format!("ebb why --watch {time} -- CMD"),
        _ => format!("ebb why --watch {time} {}", quoted(snapshot)),
    }
}

/// A time that a person would type: up to the next 10 seconds, minute, or hour.
pub(super) fn rounded(seconds: f64) -> f64 {
    let step = match seconds {
        seconds if seconds <= 60.0 => 10.0,
        seconds if seconds <= 7200.0 => 60.0,
        _ => 3600.0,
    };
    (seconds / step).ceil() * step
}

/// The same as an argument.
pub(super) fn argument(seconds: f64) -> String {
    match seconds as u64 {
        whole if whole % 3600 == 0 => format!("{}h", whole / 3600),
        whole if whole % 60 == 0 => format!("{}m", whole / 60),
        whole => format!("{whole}s"),
    }
}

/// Which shared memory a process has.
pub(super) fn shared(snapshot: &Snapshot) -> String {
    format!("grep -E 'memfd|/dev/shm|SYSV|zero' /proc/{}/maps", first_pid(snapshot))
}

pub(super) fn first_pid(snapshot: &Snapshot) -> i32 {
    snapshot.processes.first().map_or(0, |first| first.pid)
}

/// The target as a word for a shell.
pub(super) fn quoted(snapshot: &Snapshot) -> String {
    let asked = &snapshot.target.asked;
    shlex::try_quote(asked).map_or_else(|_| asked.clone(), |quoted| quoted.into_owned())
}

/// Remedies for what could not be read: each gate once, with its processes if there is more than one gate.
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
    if let [(remedy, _)] = gates.as_slice() {
        return Some((*remedy).to_owned());
    }
    let each = gates.iter().map(|(remedy, pids)| {
        let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
        if pids.is_empty() { (*remedy).to_owned() } else { format!("{}: {remedy}", pids.join(", ")) }
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| each.join(" "))
}

/// Whether a process of it is on glibc's malloc.
fn is_glibc(snapshot: &Snapshot) -> bool {
    snapshot.processes.iter().any(|process| process.allocator.name.as_deref() == Some(Allocator::Glibc.name()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use ebb_process::snapshot::{Allocator, Heap, Missing, Process};

    #[test]
    fn each_gate_is_named_once_with_the_processes_behind_it() {
        let missing = |pid, remedy: Option<&str>| Missing {
            pid: Some(pid),
            what: "the heap".to_owned(),
            why: "closed".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let of = |missing: Vec<Missing>| gates(&Snapshot { missing, ..ebb_process::example::snapshot(Vec::new()) });
        assert_eq!(of(vec![missing(1, None)]), None);
        let one = vec![missing(1, Some("Open it.")), missing(2, Some("Open it."))];
        assert_eq!(of(one.clone()).as_deref(), Some("Open it."));
        let other = vec![missing(7, Some("Another.")), missing(1, Some("Open it."))];
        assert_eq!(of([one, other].concat()).as_deref(), Some("1, 2: Open it. 7: Another."));
    }

    #[test]
    fn the_next_step_contains_the_remedy() {
        let of = |main, reader: &str| {
            give_back(
                Some(main),
                &ebb_process::example::snapshot(vec![Process {
                    allocator: Allocator { name: Some(reader.to_owned()), file: None },
                    heap: Some(Heap {
                        reader: reader.to_owned(),
                        kept: 50,
                        settings: BTreeMap::from([("background_thread".into(), "false".into())]),
                        ..Heap::default()
                    }),
                    ..Process::default()
                }]),
            )
        };
        for (main, reader, remedy) in [
            (Cause::Trimmable, "glibc", "ebb trim 7 --inject"),
            (Cause::Tops, "glibc", "glibc+MALLOC_TRIM_THRESHOLD_=131072"),
            (Cause::FreeObjects, "glibc", "--variants glibc,ebbmalloc:"),
            (Cause::FreeObjects, "ebbmalloc", "without python:off in EBB_CONF"),
            (Cause::Kept, "jemalloc", "MALLOC_CONF=background_thread:true"),
            (Cause::Pinned, "glibc", "ebb compare WORKLOAD -o DIR"),
        ] {
            let next = of(main, reader);
            assert!(next.contains(remedy), "{remedy} is not in {next}");
        }
    }
}
