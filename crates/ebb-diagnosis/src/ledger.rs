//! The ledger: where the target's memory is, summed over its processes; and the bridge from there to the cgroup.
//!
//! The total is PSS, so a page that workers share counts once. A heap's reader counts resident pages
//! whole; its figures are scaled by the share that PSS gives the process of them. The remainder
//! is a line of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::diagnosis::{Bridge, Cause, Ledger, Line};
use ebb_allocators::Allocator;
use ebb_process::snapshot::{Cgroup, Heap, Hidden, Kind, Objects, Process, Runtime, Snapshot, TargetKind};

/// What a heap consists of, with what it holds of freed memory.
pub(super) const OF_HEAP: [Cause; 8] =
    [Cause::Live, Cause::Trimmable, Cause::Tops, Cause::Pinned, Cause::Cached, Cause::Kept, Cause::Lazy, Cause::Locked];

impl Cause {
    /// Whether it was freed and is held.
    pub(super) fn is_held(self) -> bool {
        self == Cause::FreeObjects || OF_HEAP[1..].contains(&self)
    }

    /// The bytes of a heap that are of this cause, before they are scaled.
    pub(super) fn of_heap(self, heap: &Heap) -> u64 {
        match self {
            Cause::Live => heap.live,
            Cause::Trimmable => heap.trimmable,
            Cause::Tops => heap.tops,
            Cause::Pinned => heap.pinned,
            Cause::Cached => heap.cached,
            Cause::Kept => heap.kept,
            Cause::Lazy => heap.lazy,
            Cause::Locked => heap.locked,
            Cause::Metadata => heap.metadata,
            Cause::UnreadHeap => heap.unread,
            _ => 0,
        }
    }
}

/// Builds the ledger of some processes.
pub fn of(processes: &[Process]) -> Ledger {
    let mut sums: BTreeMap<Cause, u64> = BTreeMap::new();
    let mut total = 0;
    let mut proportional = true;
    for process in processes {
        let (of_process, lines) = match &process.memory {
            Some(_) => with_mappings(process),
            None => {
                proportional = false;
                without_mappings(process)
            }
        };
        total += of_process;
        for (cause, bytes) in lines {
            *sums.entry(cause).or_default() += bytes;
        }
    }
    // In the order of the causes.
    let lines = sums.into_iter().filter(|(_, bytes)| *bytes > 0);
    let lines: Vec<Line> = lines.map(|(cause, bytes)| Line { cause, bytes, note: note(cause, processes) }).collect();
    let explained: u64 = lines.iter().map(|line| line.bytes).sum();
    Ledger { total, proportional, remainder: total as i64 - explained as i64, lines }
}

impl Ledger {
    /// The bytes of one line.
    pub fn bytes(&self, cause: Cause) -> u64 {
        self.lines.iter().filter(|line| line.cause == cause).map(|line| line.bytes).sum()
    }

    /// What the allocator holds of memory that was freed.
    pub fn held(&self) -> u64 {
        let held = self.lines.iter().filter(|line| line.cause.is_held());
        held.map(|line| line.bytes).sum()
    }
}

type Lines = Vec<(Cause, u64)>;

fn with_mappings(process: &Process) -> (u64, Lines) {
    let usage = |kind| process.usage(kind).unwrap_or_default();
    // Where malloc's memory can be: the break heap and what is anonymous.
    let mut malloc = usage(Kind::Brk);
    malloc.add(usage(Kind::Malloc));
    let mut anywhere = malloc;
    anywhere.add(usage(Kind::Anonymous));
    let mut lines = match &process.heap {
        Some(heap) => {
            let mut lines = of_heap(heap, anywhere.pss, anywhere.rss);
            if let Some(objects) = &process.objects {
                lines.extend(of_objects(objects, anywhere.pss, anywhere.rss));
            }
            let heaps: u64 = lines.iter().map(|(_, bytes)| bytes).sum();
            let beside = anywhere.pss.saturating_sub(heaps);
            let unread = scaled(unread_outside_heaps(process), anywhere.pss, anywhere.rss).min(beside);
            lines.push((Cause::UnreadHeap, unread));
            lines.push((Cause::Anonymous, beside - unread));
            lines
        }
        None if is_runtimes(process) => {
            vec![(Cause::UnreadHeap, malloc.pss), (Cause::Anonymous, usage(Kind::Anonymous).pss)]
        }
        None => vec![(Cause::UnreadHeap, anywhere.pss)],
    };
    let rest = [
        (Cause::Stacks, Kind::Stack),
        (Cause::Data, Kind::Data),
        (Cause::MappedFiles, Kind::File),
        (Cause::SharedMemory, Kind::Shared),
        (Cause::Special, Kind::Special),
    ];
    lines.extend(rest.map(|(cause, kind)| (cause, usage(kind).pss)));
    // RSS does not count these either, and a ledger that does would not meet it.
    let counted = process.memory.iter().flatten().filter(|(kind, _)| **kind != Kind::Hugetlb);
    (counted.map(|(_, usage)| usage.pss).sum(), lines)
}

/// Whether anonymous memory is a runtime's own heap where `malloc`'s was not read. Only glibc's arenas can be told
/// from it by their mappings; every other allocator may have mapped it.
fn is_runtimes(process: &Process) -> bool {
    let name = process.allocator.name.as_deref();
    process.runtime.is_some() && name.is_none_or(|name| name == Allocator::Glibc.name())
}

/// The most that allocators may have of the memory that no reader found.
fn unread_outside_heaps(process: &Process) -> u64 {
    match (process.hidden.is_empty(), &process.heap) {
        (false, _) => u64::MAX,
        (true, Some(heap)) => heap.missing,
        (true, None) => 0,
    }
}

/// A reader's resident bytes as their share by PSS.
fn scaled(bytes: u64, pss: u64, rss: u64) -> u64 {
    let share = (u128::from(bytes) * u128::from(pss)).checked_div(u128::from(rss));
    share.map_or(bytes, |share| u64::try_from(share).unwrap_or(u64::MAX))
}

fn of_objects(objects: &Objects, pss: u64, rss: u64) -> Lines {
    let free = objects.resident.saturating_sub(objects.live);
    [(Cause::Objects, objects.live), (Cause::FreeObjects, free)]
        .map(|(cause, bytes)| (cause, scaled(bytes, pss, rss)))
        .to_vec()
}

fn of_heap(heap: &Heap, pss: u64, rss: u64) -> Lines {
    let causes = OF_HEAP.into_iter().chain([Cause::Metadata, Cause::UnreadHeap]);
    causes.map(|cause| (cause, scaled(cause.of_heap(heap), pss, rss))).collect()
}

/// From the figures that are open to all.
fn without_mappings(process: &Process) -> (u64, Lines) {
    let status = &process.status;
    let anonymous = if is_runtimes(process) { Cause::Anonymous } else { Cause::UnreadHeap };
    let lines = [(anonymous, status.anon), (Cause::MappedFiles, status.file), (Cause::SharedMemory, status.shared)];
    let lines = lines.map(|(cause, bytes)| (cause, bytes.unwrap_or(0))).to_vec();
    (status.rss.unwrap_or(0), lines)
}

fn note(cause: Cause, processes: &[Process]) -> Option<String> {
    let each = || processes.iter();
    match cause {
        Cause::Stacks => {
            let stacks = each().filter_map(|process| process.usage(Kind::Stack));
            Some(match stacks.map(|usage| usage.mappings).sum() {
                1_u64 => "1 stack".to_owned(),
                stacks => format!("{stacks} stacks"),
            })
        }
        Cause::Anonymous => {
            let owners = owners(processes).join(", ");
            (!owners.is_empty()).then(|| format!("{owners} and what the program maps itself"))
        }
        Cause::UnreadHeap => {
            let unread = each().filter(|process| process.heap.is_none());
            let unread = names(unread.filter_map(|process| process.allocator.name.clone()));
            let hidden = names(each().flat_map(|process| &process.hidden).map(hidden_name));
            if let Some(unread) = unread {
                Some(format!("{unread}: not known whether live or free"))
            } else if let Some(hidden) = hidden {
                Some(format!("{hidden}, or what the program maps itself"))
            } else {
                let is_missing = heaps(processes).any(|heap| heap.missing > 0);
                is_missing.then(|| "counted by malloc, but not found".to_owned())
            }
        }
        Cause::Live => names(heaps(processes).map(|heap| heap.reader.clone())),
        Cause::Objects => {
            let objects = each().filter_map(|process| process.objects.as_ref());
            names(objects.map(|objects| objects.reader.clone()))
        }
        _ => None,
    }
}

pub(super) fn heaps(processes: &[Process]) -> impl Iterator<Item = &Heap> {
    processes.iter().filter_map(|process| process.heap.as_ref())
}

/// Whether the heaps of all processes were read.
pub(super) fn has_all_heaps(snapshot: &Snapshot) -> bool {
    snapshot.processes.iter().all(|process| process.heap.is_some())
}

/// What an allocator out of sight is called.
pub(super) fn hidden_name(hidden: &Hidden) -> String {
    let file = hidden.file.rsplit('/').next().unwrap_or_default();
    match &hidden.name {
        Some(name) => format!("{name} in {file}"),
        None => format!("{file}, which was not searched"),
    }
}

/// Committed and used bytes of the heaps of runtimes that say so.
pub(super) fn managed(processes: &[Process]) -> Option<(u64, u64)> {
    let all = processes.iter().filter_map(|process| process.managed.as_ref());
    all.map(|it| (it.committed, it.used)).reduce(|sum, it| (sum.0 + it.0, sum.1 + it.1))
}

/// Who may have memory besides `malloc`: pools of libraries and runtimes' own heaps, each once.
pub(super) fn owners(processes: &[Process]) -> Vec<String> {
    let unread = processes.iter().filter(|process| !process.pool_is_read());
    let pools = unread.filter_map(|process| process.pool).map(|pool| pool.to_string());
    let runtimes = processes.iter().filter_map(|process| process.runtime);
    let owners: BTreeSet<String> = pools.chain(runtimes.map(|it| own_heap(it).to_owned())).collect();
    owners.into_iter().collect()
}

/// What a runtime's memory is called.
fn own_heap(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Cpython => "CPython's own heap",
        Runtime::V8 => "V8's own heap",
        Runtime::Jvm => "the JVM's own heap",
        Runtime::Go => "Go's own heap",
        Runtime::Ruby => "Ruby's own heap",
    }
}

/// Each name once, in order; nothing without one.
fn names(all: impl Iterator<Item = String>) -> Option<String> {
    let names: BTreeSet<String> = all.collect();
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// From the processes to the cgroup; absent where a figure is.
pub fn bridge(snapshot: &Snapshot, ledger: &Ledger) -> Option<Bridge> {
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
        // Free pages, and the part that caches hold; pinned bytes cannot be returned.
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
fn working_set(cgroup: &Cgroup) -> Option<u64> {
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
